"""Counts the GPU seconds of each user and project, over all jobs.

The row of a user changes in the same write as the job, so that a crash neither loses time nor
counts it twice. `as_of` adds the time of running jobs since their last transition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rota.core.estimation.service_time import service_at
from rota.core.model.job import Ended, Job
from rota.store.records import UsageRecord

UsageKey = tuple[str, str]


class UsageAccounting:
    def __init__(self, rows: Iterable[UsageRecord] = (), jobs: Iterable[Job] = ()) -> None:
        """`rows` and the `jobs` that are not over, as the store loaded them."""
        self._rows = {(row.project, row.user): row for row in rows}
        self._counted = {job.id: job.service.gpu_s for job in jobs}
        """Job -> its GPU seconds that are in a row."""

    def count(self, jobs: Iterable[Job], *, now: float) -> tuple[UsageRecord, ...]:
        """Count the time of these jobs. Returns the changed rows."""
        changed: dict[UsageKey, UsageRecord] = {}
        for job in jobs:
            used = job.service.gpu_s - self._counted.get(job.id, 0.0)
            if used > 0:
                row = self._row(job, used, now=now)
                changed[row.project, row.user] = self._rows[row.project, row.user] = row
            self._remember(job)
        return tuple(changed.values())

    def as_of(self, jobs: Iterable[Job], now: float) -> list[UsageRecord]:
        """All rows, including the time of these jobs that is in no row yet."""
        upto = UsageAccounting(self._rows.values())
        upto._counted = self._counted.copy()
        upto.count((replace(job, service=service_at(job, now)) for job in jobs), now=now)
        return [row for _, row in sorted(upto._rows.items())]

    def _row(self, job: Job, used_s: float, *, now: float) -> UsageRecord:
        project, user = job.spec.project, job.spec.user
        before = self._rows.get((project, user), UsageRecord(project, user, 0.0, 0.0, now))
        # There is no half-life yet, so nothing decays.
        return UsageRecord(project, user, before.gpu_s + used_s, before.decayed_gpu_s + used_s, now)

    def _remember(self, job: Job) -> None:
        if isinstance(job.phase, Ended):
            self._counted.pop(job.id, None)
        elif job.service.gpu_s:
            self._counted[job.id] = job.service.gpu_s
