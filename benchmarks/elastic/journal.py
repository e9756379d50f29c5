"""Computes pauses and rates from the lines that a training script writes. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

FEW = 16


class Stamp(NamedTuple):
    at_s: float
    kind: str
    numbers: tuple[float, ...]


class Change(NamedTuple):
    """`pause_s` is from the last step at the old size to the first at the new one, and `decided_s`
    from the decision to the latter. `own_s` is what of the pause the script took to start."""

    pause_s: float
    decided_s: float
    own_s: float


def read(path: Path) -> list[Stamp]:
    """Parse all complete lines."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [_stamp(line.split()) for line in whole]


def _stamp(words: Sequence[str]) -> Stamp:
    return Stamp(float(words[0]), words[1], tuple(map(float, words[2:])))


def first_step_s(stamps: Iterable[Stamp], *, size: int, after_s: float) -> float | None:
    """Time of the first step with this number of workers."""
    return min((at_s for at_s in _steps(stamps, size) if at_s > after_s), default=None)


def change(stamps: Sequence[Stamp], *, decided_s: float, sizes: tuple[int, int]) -> Change:
    """The change of size that was decided at this time. The change must be complete."""
    before, after = sizes
    first_s = first_step_s(stamps, size=after, after_s=decided_s)
    if first_s is None:
        raise ValueError(f"no step with {after} workers")
    last_s = max(at_s for at_s in _steps(stamps, before) if at_s < first_s)
    starts = [
        stamp for stamp in stamps if stamp.kind == "ready" and decided_s < stamp.at_s < first_s
    ]
    own_s = 0.0
    if starts:
        latest = max(starts)
        own_s = max(0.0, latest.at_s - max(latest.numbers[0], last_s))
    return Change(first_s - last_s, first_s - decided_s, own_s)


def _steps(stamps: Iterable[Stamp], size: int) -> list[float]:
    return [stamp.at_s for stamp in stamps if stamp.kind == "step" and stamp.numbers[0] == size]


def rate_mb_s(stamps: Iterable[Stamp]) -> float | None:
    """Rate at which the training state arrived, in 10**6 bytes per second."""
    found = [stamp.numbers for stamp in stamps if stamp.kind == "received" and stamp.numbers[0]]
    rates = [n_bytes / seconds / 1e6 for n_bytes, seconds in found]
    return statistics.median(rates) if rates else None


def hooks_s(stamps: Iterable[Stamp], *, size: int) -> tuple[float, float] | None:
    """What our hooks took in a step: by the clock, and of the processor. The middle one of the
    means over a few steps, because not every step has a vote."""
    found = [
        stamp.numbers[1:] for stamp in stamps if stamp.kind == "hooks" and stamp.numbers[0] == size
    ]
    if not found:
        return None
    clock, processor = (_middle(each) for each in zip(*found, strict=True))
    return clock, processor


def _middle(values: Sequence[float]) -> float:
    some = [values[i : i + FEW] for i in range(0, len(values), FEW)]
    whole = [each for each in some if len(each) == FEW] or some
    return statistics.median(map(statistics.fmean, whole))
