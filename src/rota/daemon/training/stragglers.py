"""Finds stragglers: workers that are persistently slower than the others of their job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

REPORTS = 5
"""How many consecutive reports must be slow. A worker reports once a second or once a step."""
FACTOR = 1.5
"""A straggler's steps take more than this times the usual time."""


def usual_s(paces: Mapping[int, Sequence[float]]) -> float:
    """The usual step time of a job: the median of its workers without the slowest one, so that one
    of two workers can be a straggler. 0 if there are too few reports."""
    known = sorted(median(times) for times in paces.values() if len(times) >= REPORTS)
    return median(known[:-1]) if len(known) > 1 else 0.0


def slowness(paces: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Worker -> how many times longer than usual its steps take, for stragglers only.

    `paces` are the step times of each worker, newest last. Data-parallel workers wait for each
    other in every step and all show the time of the slowest one. So stragglers are found only if
    workers report their step time without this wait, as live workers do."""
    usual = usual_s(paces)
    return {
        worker: median(times) / usual
        for worker, times in paces.items()
        if len(times) >= REPORTS and 0 < FACTOR * usual < min(list(times)[-REPORTS:])
    }
