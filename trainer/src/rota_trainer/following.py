"""A CSV file that is followed in the background, for scripts that write one anyway."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rota_trainer.progress import Observed
from rota_trainer.tally import Tally

if TYPE_CHECKING:
    from rota_trainer.csv_file import CsvFile

EVERY_S = 1.0


class Following:
    def __init__(self, file: CsvFile, tally: Tally) -> None:
        self._file = file
        self._observed = Observed(tally)
        self._ended = threading.Event()
        for row in file.poll():
            self._observed.catch_up(row)
        self._thread = threading.Thread(target=self._run, name="rota-trainer-csv", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """With what was written last."""
        self._ended.set()
        self._thread.join(EVERY_S)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(EVERY_S)
            for row in self._file.poll():
                self._observed.advance(row)
