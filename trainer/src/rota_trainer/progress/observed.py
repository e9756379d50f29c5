"""How far a program is, as it says itself: in lines that it prints, or rows that it appends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from rota_trainer.bounds import LONGEST_NAME
from rota_trainer.tally import Tally
from rota_trainer.values import as_number

MOST_EPOCHS = 1e12
"""More than that of anything was never counted."""


class Progress(NamedTuple):
    """What one line or row says; None is what it does not say. `epoch` counts whole epochs done."""

    epoch: int | None = None
    epochs: float | None = None
    step: int | None = None
    steps: int | None = None
    epoch_s: float | None = None
    samples: int = 0
    metrics: Mapping[str, float] = {}


def from_words(words: Mapping[str, str | None], *, from_zero: bool = False) -> Progress:
    """The named groups of a match. Words that are no numbers are left out.

    A line that names a step is about an epoch that runs, any other about one that is over.
    """
    numbers = {name: _number(word) for name, word in words.items()}
    epoch, epochs, step, steps = (
        as_count(numbers.pop(name, None)) for name in ("epoch", "epochs", "step", "steps")
    )
    if epoch is not None:
        epoch = max(0, epoch - (step is not None) + from_zero)
    metrics = {name[:LONGEST_NAME]: each for name, each in numbers.items() if each is not None}
    return Progress(epoch, epochs, step, steps, metrics=metrics)


class Observed:
    """Turns what a program says into what is reported of it."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._epoch_s: float | None = None
        self._step_s: float | None = None

    def catch_up(self, progress: Progress) -> None:
        """Where it is, told of times past: nothing is learnt about how long anything takes."""
        if progress.epochs is not None:
            self._tally.epochs_total = progress.epochs
        if progress.steps is not None:
            self._tally.steps_total = progress.steps
        if progress.epoch is not None:
            self._tally.go_to(progress.epoch, progress.step or 0)
        elif progress.step is not None:
            self._tally.go_to(self._tally.epoch, progress.step)

    def advance(self, progress: Progress) -> None:
        """Where it is now."""
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

    def _end_epoch(self, progress: Progress, *, is_next: bool, now_s: float) -> None:
        seconds = progress.epoch_s
        if seconds is None and self._epoch_s is not None and is_next:
            seconds = now_s - self._epoch_s
        self._epoch_s = now_s
        if seconds is not None:
            self._tally.end_epoch(seconds, steps=progress.steps or 0, samples=progress.samples)


def _number(word: str | None) -> float | None:
    try:
        return as_number(float(word)) if word else None
    except ValueError:
        return None


def as_count(number: float | None) -> int | None:
    """A whole number of anything, if it can be one."""
    return int(number) if number is not None and 0 <= number <= MOST_EPOCHS else None
