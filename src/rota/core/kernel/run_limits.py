"""Limits on jobs that run at once: of one array, and of one user's jobs without GPUs.

A job that runs, or that has planned slots, keeps its place. Of the others, the first ones in the
order of submission may run until the limit is reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from rota.core.model.job import Job, JobId

CPU_JOBS_PER_CPU = 16
"""Jobs without GPUs of one user that run at once, for each CPU of the nodes."""


def above_array_limit(
    jobs: Mapping[JobId, Job], *, limited: Iterable[Job], has_place: Callable[[Job], bool]
) -> frozenset[JobId]:
    """The jobs that the limit of their array keeps out. `limited` are all jobs, these and others,
    of arrays with a limit."""
    n_running = Counter(job.spec.array for job in limited if has_place(job))
    kept_out: set[JobId] = set()
    for job in jobs.values():
        if not job.spec.array_limit or has_place(job):
            continue
        n_running[job.spec.array] += 1
        if n_running[job.spec.array] > job.spec.array_limit:
            kept_out.add(job.id)
    return frozenset(kept_out)


def above_user_limit(
    jobs: Mapping[JobId, Job], *, running: Mapping[JobId, Job], most: float
) -> frozenset[JobId]:
    """The jobs without GPUs that their user may not run beside those that run already."""
    n_running = Counter(job.spec.user for job in running.values() if not job.spec.uses_gpus)
    kept_out: set[JobId] = set()
    for job in jobs.values():
        if job.spec.uses_gpus or job.id in running:
            continue
        n_running[job.spec.user] += 1
        if n_running[job.spec.user] > most:
            kept_out.add(job.id)
    return frozenset(kept_out)
