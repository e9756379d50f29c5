"""What it costs a job to be disturbed: asked by the guard and by defragmentation."""

from __future__ import annotations

import math

from rota.core.model import Job, Running, Starting, n_gpus
from rota.core.progress import loss
from rota.core.view import View


def protected_until_s(job: Job, view: View) -> float:
    """When the job will have run long enough to be disturbed."""
    if not isinstance(job.phase, Running | Starting):
        return -math.inf
    own = job.spec.min_runtime_s
    return job.phase.since_s + (own if own is not None else view.rules.min_runtime_s)


def restart_cost_s(job: Job, view: View) -> float:
    """Seconds that a stop and a start take from the job: its own if measured."""
    return view.rules.restart_cost_s if job.start_s is None else job.start_s + job.stop_s


def resize_cost_s(job: Job, view: View) -> float:
    """The same for a change of size, which some jobs take without stopping."""
    return (job.resize_s or 0.0) if job.spec.mode.resizes_in_place else restart_cost_s(job, view)


def loss_gpu_s(job: Job, view: View) -> float:
    """GPU-seconds that are lost if the job is stopped now and started again later: the restart,
    and the work that it has not saved and will not save when it is asked to stop."""
    if not isinstance(job.phase, Running | Starting):
        return 0.0
    unsaved_s = 0.0
    if not job.hears:
        lost = loss(job)
        since_report_s = max(0.0, view.now - max(job.progress_at_s, job.phase.since_s))
        unsaved_s = since_report_s + (lost.seconds if lost else 0.0)
    return (restart_cost_s(job, view) + unsaved_s) * n_gpus(job.allocation)
