"""The background thread that reports and hears orders. Training never waits for it."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from typing import Any, Optional

from rota_trainer.messages import Orders, Report, to_json
from rota_trainer.place import Place
from rota_trainer.tally import Tally

INTERVAL_S = 1.0
"""At most one report in so long; the daemon holds its answer as long, and answers at once when it
has an order."""
BACKOFF_MAX_S = 30.0
FAREWELL_S = 2.0


class Reporter:
    def __init__(self, place: Place, tally: Tally) -> None:
        self._place = place
        self._tally = tally
        self._sequence = 0
        self._unsent: Optional[Report] = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-trainer", daemon=True)
        self.orders = Orders()
        """The newest orders; replaced as a whole, so that any thread may read them."""
        self.hears = True
        """Whether the script stops by itself when it is asked to."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Say what is left to say, without waiting long for an answer."""
        self._ended.set()
        self._thread.join(FAREWELL_S)

    def _run(self) -> None:
        from rota_trainer.wire import PATIENCE_S, Wire, WireError

        wire = Wire(self._place.url, self._place.token)
        pause_s, was_lost = 0.0, False
        while True:
            is_last = self._ended.wait(pause_s)
            began_s = time.monotonic()
            wait_s = 0.0 if is_last else INTERVAL_S
            try:
                answer = wire.send(
                    to_json(replace(self._next(), wait_s=wait_s)),
                    timeout_s=FAREWELL_S if is_last else wait_s + PATIENCE_S,
                )
            except WireError as error:
                if is_last or error.is_final:
                    return
                was_lost = True
                pause_s = min(BACKOFF_MAX_S, max(INTERVAL_S, 2 * pause_s))
                continue
            self._unsent = None
            self._heed(answer)
            if is_last:
                return
            if was_lost:
                was_lost = False
            # The answer to an order comes at once: the pause keeps to one report a second.
            pause_s = max(0.0, INTERVAL_S - (time.monotonic() - began_s))

    def _next(self) -> Report:
        """A report that did not arrive is sent again as it was; what came since waits."""
        if self._unsent is None:
            self._sequence += 1
            taken: Any = self._tally.take()
            self._unsent = Report(
                worker=self._place.worker,
                sequence=self._sequence,
                generation=self._place.generation,
                hears=self.hears,
                **taken,
            )
        return self._unsent

    def _heed(self, answer: Orders) -> None:
        self.orders = answer
        for note in answer.notes:
            print(f"rota: {note}", file=sys.stderr, flush=True)
