"""How many GPU seconds each person used for each project, over all jobs.

A row changes in the same write as the job whose time was counted, so that a crash neither loses
time nor counts it twice. What running jobs used since their last transition is added when somebody
asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rota.core.model import Ended, Job
from rota.core.progress import service_at
from rota.store.records import Usage

Account = tuple[str, str]


class Accounts:
    def __init__(self, rows: Iterable[Usage] = (), jobs: Iterable[Job] = ()) -> None:
        """As they were written down, together with the jobs that are not over."""
        self._rows = {(row.project, row.user): row for row in rows}
        self._counted = {job.id: job.service.gpu_s for job in jobs}
        """What of a job's time is in its row."""

    def count(self, jobs: Iterable[Job], *, now: float) -> tuple[Usage, ...]:
        """The rows that change with these jobs."""
        changed: dict[Account, Usage] = {}
        for job in jobs:
            used = job.service.gpu_s - self._counted.get(job.id, 0.0)
            if used > 0:
                row = self._row(job, used, now=now)
                changed[row.project, row.user] = self._rows[row.project, row.user] = row
            self._remember(job)
        return tuple(changed.values())

    def as_of(self, jobs: Iterable[Job], now: float) -> list[Usage]:
        """All rows, with what these jobs used and no row counts yet."""
        upto = Accounts(self._rows.values())
        upto._counted = self._counted.copy()
        upto.count((replace(job, service=service_at(job, now)) for job in jobs), now=now)
        return [row for _, row in sorted(upto._rows.items())]

    def _row(self, job: Job, used_s: float, *, now: float) -> Usage:
        project, user = job.spec.project, job.spec.user
        before = self._rows.get((project, user), Usage(project, user, 0.0, 0.0, now))
        # Nothing decays while there is no half-life to decay by.
        return Usage(project, user, before.gpu_s + used_s, before.decayed_gpu_s + used_s, now)

    def _remember(self, job: Job) -> None:
        if isinstance(job.phase, Ended):
            self._counted.pop(job.id, None)
        elif job.service.gpu_s:
            self._counted[job.id] = job.service.gpu_s
