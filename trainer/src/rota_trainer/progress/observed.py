"""Progress of a program that is read from its output lines or from the rows of its CSV file.

`parse_progress` turns named values into a `ProgressUpdate`; `ProgressObserver` adds updates to the
tally and measures the time between them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from rota_trainer.progress.numbers import as_number
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.limits import LONGEST_NAME, MOST_EPOCHS


class ProgressUpdate(NamedTuple):
    """The content of one line or row; None for what it does not contain. `epoch` is the number of
    finished epochs."""

    epoch: int | None = None
    epochs: float | None = None
    step: int | None = None
    steps: int | None = None
    epoch_s: float | None = None
    samples: int = 0
    metrics: Mapping[str, float] = {}


def parse_progress(words: Mapping[str, str | None], *, from_zero: bool = False) -> ProgressUpdate:
    """Read the named groups of a match. Values that are not numbers are ignored.

    A line with a step is about an epoch that runs; a line without is about a finished epoch.
    """
    numbers = {name: _number(text) for name, text in words.items()}
    epoch, epochs, step, steps = (
        as_count(numbers.pop(name, None)) for name in ("epoch", "epochs", "step", "steps")
    )
    if epoch is not None:
        epoch = as_count(max(0, epoch - (step is not None) + from_zero))
    metrics = {name[:LONGEST_NAME]: each for name, each in numbers.items() if each is not None}
    return ProgressUpdate(epoch, epochs, step, steps, metrics=metrics)


class ProgressObserver:
    """Adds the updates of one program to the tally."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._epoch_s: float | None = None
        self._step_s: float | None = None

    def catch_up(self, progress: ProgressUpdate) -> None:
        """Set the position from an old update. Durations are not measured from old updates."""
        if progress.epochs is not None:
            self._tally.epochs_total = progress.epochs
        if progress.steps is not None:
            self._tally.steps_total = progress.steps
        if progress.epoch is not None:
            self._tally.go_to(progress.epoch, progress.step or 0)
        elif progress.step is not None:
            self._tally.go_to(self._tally.epoch, progress.step)

    def advance(self, progress: ProgressUpdate) -> None:
        """Set the position from a new update, and measure the time since the update before."""
        epoch, step = self._tally.epoch, self._tally.step_of_epoch
        self.catch_up(progress)
        now_s = time.monotonic()
        if self._tally.epoch != epoch:
            self._end_epoch(progress, is_next=self._tally.epoch == epoch + 1, now_s=now_s)
            step = 0
        if progress.step is not None:
            count = self._tally.step_of_epoch - step
            if count > 0 and self._step_s is not None:
                self._tally.steps(count, now_s - self._step_s)
            self._step_s = now_s
        self._tally.metrics(progress.metrics)

    def _end_epoch(self, progress: ProgressUpdate, *, is_next: bool, now_s: float) -> None:
        seconds = progress.epoch_s
        if seconds is None and self._epoch_s is not None and is_next:
            seconds = now_s - self._epoch_s
        self._epoch_s = now_s
        if seconds is not None:
            self._tally.end_epoch(seconds, steps=progress.steps or 0, samples=progress.samples)


def _number(text: str | None) -> float | None:
    try:
        return as_number(float(text)) if text else None
    except ValueError:
        return None


def as_count(number: float | None) -> int | None:
    """The number as a count that a report may contain, else None."""
    return int(number) if number is not None and 0 <= number <= MOST_EPOCHS else None
