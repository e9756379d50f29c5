"""A CSV that a program appends a row to after each epoch, read as it grows.

`epoch` counts from 0 and is over when its row is there. `epoch_time_sec`, `step_time_sec`,
`total_epochs` and `local_batch_size` say the rest; `start_time`, `workers` and `global_batch_size`
are known otherwise; every other column is a metric.
"""

from __future__ import annotations

import csv
import os
from typing import BinaryIO

from rota_trainer.bounds import MOST_METRICS
from rota_trainer.progress import Progress, as_count, from_words
from rota_trainer.say import say

READ_BYTES = 1 << 16
LONGEST_ROW = 1 << 16
MOST_READS = 64
"""At one time; the next time goes on from there."""
NOT_METRICS = frozenset(
    [
        *("epoch_time_sec", "step_time_sec", "start_time", "workers", "total_epochs"),
        *("local_batch_size", "global_batch_size", "steps", "epochs", "step"),
    ]
)


class CsvFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._begun = b""
        self._is_skipping = False
        self._columns: list[str] | None = None
        self._has_complained = False

    def poll(self) -> list[Progress]:
        """What rows that came since say. A file that is not there yet has none."""
        try:
            with open(self._path, "rb", opener=_without_waiting) as file:
                found = self._read(file)
        except OSError:
            return []
        return [each for row in found for each in self._parse(row)]

    def _read(self, file: BinaryIO) -> list[bytes]:
        state = os.fstat(file.fileno())
        if state.st_ino != self._inode or state.st_size < self._offset:
            # Another file by this name, or it was begun anew.
            self._inode, self._offset, self._columns = state.st_ino, 0, None
            self._begun, self._is_skipping = b"", False
        file.seek(self._offset)
        rows: list[bytes] = []
        for _ in range(MOST_READS):
            read = file.read(READ_BYTES)
            if not read:
                break
            self._offset += len(read)
            rows += self._split(read)
        return rows

    def _split(self, read: bytes) -> list[bytes]:
        *rows, begun = (self._begun + read).split(b"\n")
        if rows and self._is_skipping:
            del rows[0]
            self._is_skipping = False
        self._begun = begun
        if len(begun) > LONGEST_ROW:
            self._begun, self._is_skipping = b"", True
        return rows

    def _parse(self, row: bytes) -> list[Progress]:
        cells = _cells(row)
        if not cells:
            return []
        if self._columns is None:
            self._columns = [name.strip() for name in cells][: MOST_METRICS + len(NOT_METRICS)]
            if "epoch" not in self._columns:
                self._complain("its first line names no column epoch")
            return []
        progress = _progress(dict(zip(self._columns, cells)))
        if progress.epoch is None:
            self._complain(f"a row without a number of the epoch is left out: {cells[0][:80]!r}")
            return []
        return [progress]

    def _complain(self, words: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            say(f"{self._path}: {words}")


def _cells(row: bytes) -> list[str]:
    text = row.decode("utf-8", "replace").replace("\0", "").strip()
    try:
        return [cell for cells in csv.reader([text]) for cell in cells]
    except csv.Error:
        return []


def _progress(cells: dict[str, str]) -> Progress:
    known = from_words({name: cells.get(name) for name in ("epoch", *NOT_METRICS)}, from_zero=True)
    told = known.metrics
    epoch_s, step_s = (_positive(told.get(f"{each}_time_sec")) for each in ("epoch", "step"))
    n_steps = as_count(epoch_s / step_s + 0.5) if epoch_s and step_s else None
    n_samples = as_count((n_steps or 0) * (_positive(told.get("local_batch_size")) or 0.0))
    words = {name: word for name, word in cells.items() if name not in NOT_METRICS}
    words.pop("epoch", None)
    return Progress(
        epoch=known.epoch,
        epochs=_positive(told.get("total_epochs")),
        steps=n_steps,
        epoch_s=epoch_s,
        samples=n_samples or 0,
        metrics=from_words(words).metrics,
    )


def _positive(number: float | None) -> float | None:
    return number if number is not None and number > 0 else None


def _without_waiting(path: str, flags: int) -> int:
    """A pipe under the name of a file would be waited for for ever."""
    return os.open(path, flags | os.O_NONBLOCK)
