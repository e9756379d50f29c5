"""How much of what was measured is kept, and which."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.records import Sample

MOST_SAMPLES = 500
THINNED_BY = 100
MOST_PROFILES = 10_000
"""Those that are older than so many others are forgotten."""


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Enough for a chart of any length of time. Of too many, some of every second one go: those
    whose neighbours are closest in time. So the points spread over the time in which the job ran,
    and no two neighbours go at once. The newest always stays."""
    if len(samples) <= MOST_SAMPLES:
        return list(samples)
    gaps = [
        (samples[place + 1].at_s - samples[place - 1].at_s, place)
        for place in range(1, len(samples) - 1, 2)
    ]
    gone = {place for _, place in sorted(gaps)[:THINNED_BY]}
    return [each for place, each in enumerate(samples) if place not in gone]
