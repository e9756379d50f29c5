"""Workers that are slower than the others of their job, for long enough to be no accident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

REPORTS = 5
"""So many in a row have to be slow. A worker reports once a second, or once in a step."""
FACTOR = 1.5
"""How many times as long as the others' a step takes of a worker that is named."""


def usual_s(paces: Mapping[int, Sequence[float]]) -> float:
    """What a step takes the workers of a job: the median without the slowest one, so that one of
    two can be slow. 0 if too little is known."""
    known = sorted(median(times) for times in paces.values() if len(times) >= REPORTS)
    return median(known[:-1]) if len(known) > 1 else 0.0


def slowness(paces: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Step times of each worker, the newest last -> how many times as long as usual a step takes
    of those that are persistently slow. Workers that wait for each other in every step (as
    data-parallel ones do) all show the pace of the slowest, and nobody is named, unless they tell
    how long they worked by themselves, as live ones do."""
    usual = usual_s(paces)
    return {
        worker: median(times) / usual
        for worker, times in paces.items()
        if len(times) >= REPORTS and 0 < FACTOR * usual < min(list(times)[-REPORTS:])
    }
