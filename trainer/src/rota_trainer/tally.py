"""What happened since the last report, kept small: the training thread adds, the reporter takes."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List

from rota_trainer.messages import MOST_METRICS, MOST_RECORDS, EpochRecord, StepsRecord

BIN_S = 0.1
"""Steps that end within so long of each other share a record."""


class Tally:
    """Bounded: what does not fit any more pushes out the oldest, and is counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Dict[str, Any] = {}
        self._metrics: Dict[str, float] = {}
        self._steps: Deque[StepsRecord] = deque(maxlen=MOST_RECORDS)
        self._epochs: Deque[EpochRecord] = deque(maxlen=MOST_RECORDS)
        self._dropped = 0
        self._count = 0
        self._seconds = 0.0
        self._slowest_s = 0.0
        self._samples = 0

    def step(self, seconds: float, samples: int = 0) -> None:
        with self._lock:
            self._count += 1
            self._seconds += seconds
            self._samples += samples
            if seconds > self._slowest_s:
                self._slowest_s = seconds
            if self._seconds >= BIN_S:
                self._close_record()

    def epoch(self, record: EpochRecord) -> None:
        with self._lock:
            self._dropped += len(self._epochs) == MOST_RECORDS
            self._epochs.append(record)

    def metrics(self, values: Dict[str, float]) -> None:
        """The newest value of each counts; of too many names, the first."""
        with self._lock:
            for name, value in values.items():
                if name in self._metrics or len(self._metrics) < MOST_METRICS:
                    self._metrics[name] = value
                else:
                    self._dropped += 1

    def set(self, **now: Any) -> None:
        """Where the run is, in fields of a report."""
        with self._lock:
            self._now.update(now)

    def take(self) -> Dict[str, Any]:
        """Everything since the last call, as fields of a report."""
        with self._lock:
            if self._count:
                self._close_record()
            taken = {
                **self._now,
                "steps": _emptied(self._steps),
                "epochs": _emptied(self._epochs),
                "metrics": self._metrics,
                "dropped": self._dropped,
            }
            self._metrics = {}
            return taken

    def _close_record(self) -> None:
        self._dropped += len(self._steps) == MOST_RECORDS
        self._steps.append(
            StepsRecord(time.time(), self._count, self._seconds, self._slowest_s, self._samples)
        )
        self._count, self._seconds, self._slowest_s, self._samples = 0, 0.0, 0.0, 0


def _emptied(records: Deque[Any]) -> List[Any]:
    found = list(records)
    records.clear()
    return found
