"""Counts steps, epochs and metrics since the last report, in bounded memory.

The training thread adds; the reporter thread takes everything with `take`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rota_trainer.progress.position import Position
from rota_trainer.reporting.limits import MOST_METRICS, MOST_RECORDS

BIN_S = 0.1
"""Consecutive steps share a record until the record covers this time."""


class Tally:
    """Bounded: a new record pushes out the oldest one, and the lost records are counted.

    The public attributes are the position of the run; only the training thread writes them.
    """

    def __init__(self, before: float = 0.0, epochs_total: float | None = None) -> None:
        """`before` is the progress of earlier attempts; it is reported until this attempt knows its
        own position."""
        self.before: float | None = before
        self.epoch = 0
        self.step_of_epoch = 0
        self.steps_total: int | None = None
        self.epochs_total = epochs_total
        self.epochs_saved: float | None = None
        self.start_s: float | None = None
        self.load_s: float | None = None
        self.save_s: float | None = None
        self._resumed = Position()
        self._lock = threading.Lock()
        self._metrics: dict[str, float] = {}
        self._steps: deque[tuple[float, int, float, float, int]] = deque(maxlen=MOST_RECORDS)
        self._epochs: deque[tuple[float, int, float, int, int]] = deque(maxlen=MOST_RECORDS)
        self._dropped = 0
        self._count = 0
        self._seconds = 0.0
        self._slowest_s = 0.0
        self._samples = 0

    @property
    def progress(self) -> float:
        """Finished epochs, with a fraction if the length of an epoch is known."""
        if self.before is not None:
            return self.before
        return self._in_epochs(self.epoch, self.step_of_epoch)

    def position(self, is_in_step: bool = False, is_in_epoch: bool = False) -> Position:
        """The position now, or after the current step or epoch."""
        epoch, step = self.epoch, self.step_of_epoch
        if is_in_step:
            step += 1
        elif is_in_epoch:
            epoch, step = epoch + 1, 0
        return Position(epoch, step, self._in_epochs(epoch, step))

    def go_to(self, epoch: int, step: int) -> None:
        self.before = None
        self.epoch, self.step_of_epoch = epoch, step

    def go_on_from(self, position: Position) -> None:
        """Continue from the position of a checkpoint, and keep its `progress`: the length of an
        epoch may not be known yet in this attempt."""
        self._resumed = position
        self.go_to(position.epoch, position.step)

    def unlock(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()

    def step(self, seconds: float, samples: int = 0) -> None:
        with self._lock:
            self._count += 1
            self._seconds += seconds
            self._samples += samples
            if seconds > self._slowest_s:
                self._slowest_s = seconds
            if self._seconds >= BIN_S:
                self._close_record()

    def steps(self, count: int, seconds: float) -> None:
        """Count several steps at once, for a program that does not report each one."""
        with self._lock:
            self._count += count
            self._seconds += seconds
            self._slowest_s = max(self._slowest_s, seconds / count)
            if self._seconds >= BIN_S:
                self._close_record()

    def end_epoch(self, seconds: float, *, steps: int, samples: int) -> None:
        """Record a finished epoch; the position must already be in the next one."""
        with self._lock:
            self._dropped += len(self._epochs) == MOST_RECORDS
            self._epochs.append((time.time(), self.epoch, seconds, steps, samples))

    def metrics(self, values: Mapping[str, float]) -> None:
        """Keep the newest value of each metric. Names beyond the limit are dropped."""
        with self._lock:
            for name, value in values.items():
                if name in self._metrics or len(self._metrics) < MOST_METRICS:
                    self._metrics[name] = value
                else:
                    self._dropped += 1

    def drop(self, count: int = 1) -> None:
        with self._lock:
            self._dropped += count

    def take(self) -> dict[str, Any]:
        """Take everything since the last call, as fields of a report; records are plain tuples."""
        with self._lock:
            if self._count:
                self._close_record()
            metrics, self._metrics = self._metrics, {}
            done, saved = self.progress, self.epochs_saved
            return {
                "epochs_done": done,
                "epochs_total": self.epochs_total,
                # A checkpoint of a step may be written before the step is counted.
                "epochs_saved": None if saved is None else min(saved, done),
                "steps_done": self.step_of_epoch,
                "steps_total": self.steps_total,
                "start_s": self.start_s,
                "load_s": self.load_s,
                "save_s": self.save_s,
                "steps": _emptied(self._steps),
                "epochs": _emptied(self._epochs),
                "metrics": metrics,
                "dropped": self._dropped,
            }

    def _in_epochs(self, epoch: int, step: int) -> float:
        if self.steps_total:
            return epoch + min(1.0, step / self.steps_total)
        is_resumed = (epoch, step) == self._resumed[:2]
        return self._resumed.progress if is_resumed else float(epoch)

    def _close_record(self) -> None:
        self._dropped += len(self._steps) == MOST_RECORDS
        self._steps.append(
            (time.time(), self._count, self._seconds, self._slowest_s, self._samples)
        )
        self._count, self._seconds, self._slowest_s, self._samples = 0, 0.0, 0.0, 0


def _emptied(records: deque[Any]) -> list[Any]:
    found = list(records)
    records.clear()
    return found
