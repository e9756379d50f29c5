"""A virtual engine for forecasts: every job continues at its estimated speed."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rota.core.estimation.remaining_time import epochs_done_at
from rota.core.model.allocation import Allocation
from rota.core.model.job import Job, JobId
from rota.engines.virtual.engine import VirtualEngine
from rota.engines.virtual.run import Delays, VirtualWork


def forecast_engine(
    jobs: Iterable[Job], now: float, *, delays: Delays | None = None
) -> VirtualEngine:
    """Build an engine in which every job has its present progress and its remaining epochs to do.
    A job with an unknown number of epochs never ends."""
    known = {job.id: job for job in jobs}

    def work_of(job_id: JobId) -> VirtualWork:
        job = known[job_id]
        epochs, speed = job.epochs, job.speed
        if math.isinf(epochs):
            return VirtualWork(1.0, lambda _allocation: math.inf)

        def run_s(allocation: Allocation) -> float:
            return epochs * speed.epoch_s(job.spec.units_in(allocation))

        return VirtualWork(epochs, run_s)

    engine = VirtualEngine(work_of, delays)
    for job in known.values():
        engine.resume(job, epochs_done_at(job, now) / job.epochs, now=now)
    return engine
