"""An engine model for forecasts: jobs go on at the speeds that they are known to have."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rota.core.model import Allocation, Job, JobId
from rota.core.progress import epochs_done_at
from rota.engines.fake import FakeEngine
from rota.engines.fake_run import Delays, Work


def foreseen(jobs: Iterable[Job], now: float, *, delays: Delays | None = None) -> FakeEngine:
    """Every job is as far as it is by now, and has its epochs that are left to do. One of which
    nobody knows how many those are goes on for ever."""
    known = {job.id: job for job in jobs}

    def work_of(job_id: JobId) -> Work:
        epochs, speed = known[job_id].epochs, known[job_id].speed
        if math.isinf(epochs):
            return Work(1.0, lambda _allocation: math.inf)

        def run_s(allocation: Allocation) -> float:
            return epochs * speed.epoch_s(len(allocation))

        return Work(epochs, run_s)

    engine = FakeEngine(work_of, delays)
    for job in known.values():
        engine.resume(job, epochs_done_at(job, now) / job.epochs, now=now)
    return engine
