"""Reads progress from a CSV file to which a program appends a row after each epoch.

The column `epoch` counts from 0; a row means that its epoch is finished. The columns
`epoch_time_sec`, `step_time_sec`, `total_epochs` and `local_batch_size` are optional. `start_time`,
`workers` and `global_batch_size` are ignored, because rota knows them. Every other column is a
metric.
"""

from __future__ import annotations

import csv
import os
import threading
from typing import BinaryIO

from rota_trainer.console import print_message
from rota_trainer.progress.observed import (
    ProgressObserver,
    ProgressUpdate,
    as_count,
    parse_progress,
)
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.limits import LONGEST_S, MOST_EPOCHS, MOST_METRICS

READ_BYTES = 1 << 16
LONGEST_ROW = 1 << 16
MOST_READS = 64
"""Reads in one poll; the next poll continues there."""
POLL_EVERY_S = 1.0
NOT_METRICS = frozenset(
    [
        *("epoch_time_sec", "step_time_sec", "start_time", "workers", "total_epochs"),
        *("local_batch_size", "global_batch_size", "steps", "epochs", "step"),
    ]
)


class CsvFile:
    """A CSV file that grows. A file that was replaced or truncated is read from its beginning."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._begun = b""
        self._is_skipping = False
        self._columns: list[str] | None = None
        self._has_warned = False

    def poll(self) -> list[ProgressUpdate]:
        """The progress of the rows that were added since the last call; none if the file does not
        exist yet."""
        try:
            with open(self._path, "rb", opener=_open_non_blocking) as file:
                found = self._read(file)
        except OSError:
            return []
        return [each for row in found for each in self._parse(row)]

    def _read(self, file: BinaryIO) -> list[bytes]:
        state = os.fstat(file.fileno())
        if state.st_ino != self._inode or state.st_size < self._offset:
            # The file was replaced or truncated.
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

    def _parse(self, row: bytes) -> list[ProgressUpdate]:
        cells = _cells(row)
        if not cells:
            return []
        if self._columns is None:
            self._columns = [name.strip() for name in cells][: MOST_METRICS + len(NOT_METRICS)]
            if "epoch" not in self._columns:
                self._warn_once("the first line names no column 'epoch'")
            return []
        progress = _progress(dict(zip(self._columns, cells)))
        if progress.epoch is None:
            self._warn_once(f"a row without an epoch number is ignored: {cells[0][:80]!r}")
            return []
        return [progress]

    def _warn_once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            print_message(f"{self._path}: {text}")


def _cells(row: bytes) -> list[str]:
    text = row.decode("utf-8", "replace").replace("\0", "").strip()
    try:
        return [cell for cells in csv.reader([text]) for cell in cells]
    except csv.Error:
        return []


def _progress(cells: dict[str, str]) -> ProgressUpdate:
    known = parse_progress(
        {name: cells.get(name) for name in ("epoch", *NOT_METRICS)}, from_zero=True
    )
    fields = known.metrics
    epoch_s, step_s = (
        _positive(fields.get(f"{each}_time_sec"), most=LONGEST_S) for each in ("epoch", "step")
    )
    n_steps = as_count(epoch_s / step_s + 0.5) if epoch_s and step_s else None
    batch = _positive(fields.get("local_batch_size"), most=MOST_EPOCHS) or 0.0
    n_samples = as_count((n_steps or 0) * batch)
    metrics = {name: text for name, text in cells.items() if name not in NOT_METRICS}
    metrics.pop("epoch", None)
    return ProgressUpdate(
        epoch=known.epoch,
        epochs=_positive(fields.get("total_epochs"), most=MOST_EPOCHS),
        steps=n_steps,
        epoch_s=epoch_s,
        samples=n_samples or 0,
        metrics=parse_progress(metrics).metrics,
    )


def _positive(number: float | None, *, most: float) -> float | None:
    return number if number is not None and 0 < number <= most else None


def _open_non_blocking(path: str, flags: int) -> int:
    """Opening a named pipe in blocking mode could wait forever."""
    return os.open(path, flags | os.O_NONBLOCK)


class CsvFollower:
    """A thread that polls a CSV file and counts its rows in the tally. Rows that exist at the
    start only set the position."""

    def __init__(self, file: CsvFile, tally: Tally) -> None:
        self._file = file
        self._observer = ProgressObserver(tally)
        self._ended = threading.Event()
        for row in file.poll():
            self._observer.catch_up(row)
        self._thread = threading.Thread(target=self._run, name="rota-trainer-csv", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, after one more poll."""
        self._ended.set()
        self._thread.join(POLL_EVERY_S)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(POLL_EVERY_S)
            for row in self._file.poll():
                self._observer.advance(row)
