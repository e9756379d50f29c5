"""Limits on stored measurements, and which samples are deleted at the limit."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.records import SampleRecord

MAX_SAMPLES = 500
"""Samples of one job. Above the limit, `DELETED_SAMPLES` of them are deleted at once."""
DELETED_SAMPLES = 100
MAX_PROFILES = 10_000
"""Profiles of categories. Above the limit, the profiles with the oldest update are deleted."""


def thinned(samples: Sequence[SampleRecord]) -> list[SampleRecord]:
    """Return the samples of a job, without some of them if there are more than `MAX_SAMPLES`.

    Candidates are every second sample; those whose two neighbours are closest in time are deleted.
    So the rest covers the whole run time evenly enough for a chart, no two neighbours are deleted
    together, and the newest sample stays. The SQL query `thin_samples` follows the same rule.
    """
    if len(samples) <= MAX_SAMPLES:
        return list(samples)
    gaps = [
        (samples[index + 1].at_s - samples[index - 1].at_s, index)
        for index in range(1, len(samples) - 1, 2)
    ]
    deleted = {index for _, index in sorted(gaps)[:DELETED_SAMPLES]}
    return [each for index, each in enumerate(samples) if index not in deleted]
