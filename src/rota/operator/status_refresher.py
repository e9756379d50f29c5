"""Keep the statuses of TrainingJobs up to date: why a job waits, its progress, and its expected
end. The store decides how often a status is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rota.core.model.job import Job
from rota.daemon.jobs.eta import JobEta, job_eta
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.views import WaitReasons, phase_reason
from rota.daemon.runtime.controller import Controller
from rota.operator.store_port import TrainingJobStore
from rota.store.kubernetes.crd_codec import StatusDetails
from rota.tasks import ErrorIsolation

MIN_INTERVAL_S = 2.0
PAUSE_FACTOR = 20.0
"""The pause after a pass, as a multiple of its duration."""
YIELD_EVERY = 100
MIN_FINISH_CHANGE_S, MIN_FINISH_CHANGE = 30.0, 0.1
"""A new expected end is published if it differs by so many seconds, or by such a part of the
time left."""


class StatusRefresher:
    def __init__(
        self,
        controller: Controller,
        store: TrainingJobStore,
        *,
        forecaster: Forecaster,
        reasons: WaitReasons,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._store = store
        self._forecaster = forecaster
        self._reasons = reasons
        self._clock = clock
        self._isolation = ErrorIsolation("job status not refreshed")

    async def run(self) -> None:
        """Refresh all statuses forever."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            if not self._controller.trouble:
                await self._forecaster.refresh()
                await self._refresh_all()
            await asyncio.sleep(max(MIN_INTERVAL_S, PAUSE_FACTOR * (loop.time() - began_s)))

    async def _refresh_all(self) -> None:
        for index, job_id in enumerate(list(self._controller.jobs)):
            if index % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            job = self._controller.job(job_id)
            if job is not None:
                with self._isolation.of(job=job_id):
                    self._refresh(job)

    def _refresh(self, job: Job) -> None:
        now = self._clock()
        eta = job_eta(job, now, expected=self._forecaster.expected.get(job.id))
        reason = self._reasons.why(job) or phase_reason(job, now)
        before = self._store.status_details(job.id)
        self._store.set_status_details(
            job.id, refreshed_status(reason, eta, before=before, now=now)
        )


def refreshed_status(
    reason: str, eta: JobEta, *, before: StatusDetails, now: float
) -> StatusDetails:
    """The status details, with changes that are worth a write."""
    return replace(
        before,
        reason=reason,
        progress=None if eta.progress is None else round(eta.progress, 2),
        finish_s=_finish(eta.finish_s, before.finish_s, now=now),
    )


def _finish(finish_s: float | None, before_s: float | None, *, now: float) -> float | None:
    if finish_s is None or before_s is None:
        return finish_s
    is_near = abs(finish_s - before_s) <= max(
        MIN_FINISH_CHANGE_S, MIN_FINISH_CHANGE * abs(finish_s - now)
    )
    return before_s if is_near else finish_s
