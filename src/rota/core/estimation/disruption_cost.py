"""What a disruption costs a job, in seconds and GPU-seconds."""

from __future__ import annotations

from rota.core.estimation.service_time import lost_work
from rota.core.model.allocation import n_gpus
from rota.core.model.job import Job, Running, Starting


def restart_cost_s(job: Job, default_s: float) -> float:
    """Seconds that a stop and a start cost the job: measured, else `default_s`."""
    return default_s if job.start_s is None else job.start_s + job.stop_s


def resize_cost_s(job: Job, default_s: float) -> float:
    """Seconds that a resize costs the job; a job that resizes in place does not stop."""
    if job.spec.mode.resizes_in_place:
        return job.resize_s or 0.0
    return restart_cost_s(job, default_s)


def loss_gpu_s(job: Job, default_s: float, *, now: float) -> float:
    """GPU-seconds that are lost if the job is stopped now and started again later: the restart, and
    the work that it has not saved and will not save when asked to stop."""
    if not isinstance(job.phase, Running | Starting):
        return 0.0
    unsaved_s = 0.0
    if not job.hears:
        lost = lost_work(job)
        since_report_s = max(0.0, now - max(job.progress_at_s, job.phase.since_s))
        unsaved_s = since_report_s + (lost.seconds if lost else 0.0)
    return (restart_cost_s(job, default_s) + unsaved_s) * n_gpus(job.allocation)
