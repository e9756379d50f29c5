"""What is told of a worker, in the kernel's words."""

from __future__ import annotations

from rota.core.events import (
    WorkersExited,
    WorkersFound,
    WorkersHindered,
    WorkersLost,
    WorkersStarted,
)
from rota.engines.base import WorkerId
from rota.engines.kubernetes.endings import Ending


def found(worker: WorkerId) -> WorkersFound:
    return WorkersFound(worker.job_id, worker.attempt, frozenset({worker.worker}))


def started(worker: WorkerId) -> WorkersStarted:
    return WorkersStarted(worker.job_id, worker.attempt, frozenset({worker.worker}))


def hindered(worker: WorkerId, why: str) -> WorkersHindered:
    return WorkersHindered(worker.job_id, worker.attempt, frozenset({worker.worker}), why)


def ended(worker: WorkerId, ending: Ending) -> WorkersExited | WorkersLost:
    job_id, attempt, number = worker.job_id, worker.attempt, worker.worker
    if ending.is_lost:
        return WorkersLost(
            job_id, attempt, frozenset({number}), ending.reason, is_refused=ending.is_refused
        )
    codes = {number: ending.code}
    return WorkersExited(job_id, attempt, codes, ending.reason, is_retriable=ending.is_retriable)
