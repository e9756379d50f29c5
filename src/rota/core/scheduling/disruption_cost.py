"""What a disruption costs a job. The guard and defragmentation use these costs."""

from __future__ import annotations

import math

from rota.core.estimation.service_time import lost_work
from rota.core.model.allocation import n_gpus
from rota.core.model.job import Job, Running, Starting
from rota.core.scheduling.view import View


def protected_until_s(job: Job, view: View) -> float:
    """When the job reaches its minimum run time and may be disrupted."""
    if not isinstance(job.phase, Running | Starting):
        return -math.inf
    own = job.spec.min_runtime_s
    return job.phase.since_s + (own if own is not None else view.rules.min_runtime_s)


def restart_cost_s(job: Job, view: View) -> float:
    """Seconds that a stop and a start cost the job: measured, else the configured default."""
    return view.rules.restart_cost_s if job.start_s is None else job.start_s + job.stop_s


def resize_cost_s(job: Job, view: View) -> float:
    """Seconds that a resize costs the job; a job that resizes in place does not stop."""
    return (job.resize_s or 0.0) if job.spec.mode.resizes_in_place else restart_cost_s(job, view)


def loss_gpu_s(job: Job, view: View) -> float:
    """GPU-seconds that are lost if the job is stopped now and started again later: the restart, and
    the work that it has not saved and will not save when asked to stop."""
    if not isinstance(job.phase, Running | Starting):
        return 0.0
    unsaved_s = 0.0
    if not job.hears:
        lost = lost_work(job)
        since_report_s = max(0.0, view.now - max(job.progress_at_s, job.phase.since_s))
        unsaved_s = since_report_s + (lost.seconds if lost else 0.0)
    return (restart_cost_s(job, view) + unsaved_s) * n_gpus(job.allocation)
