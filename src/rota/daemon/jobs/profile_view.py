"""What is learnt of a job while it trains, as its owner is told: newest figures, and a hint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rota.core.model import Ended, Job, JobId, Queued, n_nodes
from rota.core.progress import loss
from rota.core.speed import Size
from rota.daemon.outlook import has_reported, progress_of
from rota.daemon.profiles import size_figures, sizes_seen, step_figures
from rota.daemon.trainees import Trainee
from rota.daemon.training import Training
from rota.store.base import Store
from rota.store.records import Sample
from rota.wire.jobs import JobDetails
from rota.wire.training import Handling, JobProfile, WorkerFigure

UNSAVED_S = 600.0
"""Work that is worth a word to whoever would lose it."""


@dataclass(frozen=True, slots=True)
class Live:
    """What the workers of a job told last. `slow` are those that hold the others up, and how many
    times as long as the others' their steps take."""

    workers: Sequence[Trainee] = ()
    slow: Mapping[int, float] = field(default_factory=dict[int, float])


def live_of(training: Training, job_id: JobId) -> Live:
    return Live(training.workers(job_id), training.slow_workers(job_id))


def profile_of(job: Job, store: Store, *, live: Live) -> JobProfile:
    samples = store.samples(job.id)
    own = sizes_seen(samples, store.attempts(job.id)) | _size_now(job)
    lead = live.workers[0] if live.workers else None
    return JobProfile(
        id=job.id,
        name=job.spec.name,
        category=job.spec.category,
        min_workers=job.spec.min_workers,
        max_workers=job.spec.max_workers,
        epochs=job.epochs if progress_of(job) is not None else None,
        epochs_done=job.epochs_done,
        sizes=size_figures(job, own),
        steps=step_figures(samples),
        workers=worker_figures(job, live) or _last_seen(samples),
        handling=Handling(
            start_s=job.start_s if lead is None or lead.start_s is None else lead.start_s,
            save_s=job.save_s if lead is None or lead.save_s is None else lead.save_s,
            load_s=job.load_s if lead is None or lead.load_s is None else lead.load_s,
            stop_s=job.stop_s or None,
        ),
        metrics=metrics_of(live) or _last_metrics(samples),
        lost_s=job.lost_s,
    )


def _size_now(job: Job) -> frozenset[Size]:
    """What it has been measured at by now, while its samples are still to be written."""
    held = job.allocation
    if not held or job.epochs_done <= job.epochs_done_at_start:
        return frozenset()
    return frozenset({Size(len(held), crosses=n_nodes(held) > 1)})


def worker_figures(job: Job, live: Live) -> list[WorkerFigure]:
    nodes = {number: slot.node for number, slot in zip(job.numbers, job.members, strict=True)}
    return [
        WorkerFigure(
            worker=each.worker,
            node=nodes.get(each.worker, ""),
            step_s=each.step_s,
            samples_per_s=each.samples_per_s,
            memory_bytes=each.memory_bytes,
            gpu_memory_bytes=each.on_cards_bytes,
            slowness=live.slow.get(each.worker),
        )
        for each in live.workers
    ]


def _last_seen(samples: Sequence[Sample]) -> list[WorkerFigure]:
    """The worker that spoke for the job, where none does any more."""
    return [
        WorkerFigure(
            worker=each.worker,
            step_s=each.step_s,
            samples_per_s=each.samples_per_s,
            memory_bytes=each.memory_bytes,
            gpu_memory_bytes=each.gpu_memory_bytes,
        )
        for each in samples[-1:]
    ]


def metrics_of(live: Live) -> dict[str, float]:
    """The newest of each name; where workers differ, the first has the word."""
    found: dict[str, float] = {}
    for worker in reversed(live.workers):
        found |= {name: value for name, value in worker.metrics.items() if math.isfinite(value)}
    return found


def _last_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    told = (dict(each.metrics) for each in reversed(samples) if each.metrics)
    return next(told, dict[str, float]())


def with_lessons(details: JobDetails, job: Job, *, live: Live, is_crowded: bool) -> JobDetails:
    """`is_crowded`: there are too many jobs for a forecast."""
    has_end = details.job.finish_s is not None
    return replace(
        details,
        epochs_saved=job.epochs_saved,
        lost_s=job.lost_s,
        metrics=metrics_of(live),
        stragglers=[each for each in worker_figures(job, live) if each.slowness is not None],
        hint=details.hint or hint(job, live, has_end=has_end, is_crowded=is_crowded),
    )


def hint(job: Job, live: Live, *, has_end: bool, is_crowded: bool) -> str:
    """What the owner could do or should know, the most useful first. `has_end`: a finish time can
    be told; `is_crowded`: there are too many jobs for a forecast."""
    if isinstance(job.phase, Ended):
        return ""
    if live.slow:
        who = "worker" if len(live.slow) == 1 else "workers"
        which = ", ".join(map(str, sorted(live.slow)))
        return f"{who} {which} kept the others waiting: look at the GPUs, the node and the data"
    unsaved = loss(job)
    if unsaved is not None and unsaved.seconds > UNSAVED_S:
        return "a stop now would lose more than ten minutes of work: save more often"
    if math.isinf(job.speed.one_s):
        if live.workers or has_reported(job):
            return "its end can be told after its first epoch"
        return "nobody knows how long it takes: submit with --hours, or report epochs from it"
    if math.isinf(job.epochs):
        return "its end cannot be told: it counts epochs, and does not say how many there will be"
    if isinstance(job.phase, Queued) and not has_end:
        if is_crowded:
            return "its end is not foreseen while so many jobs wait"
        return "its end cannot be foreseen: nobody knows how long the jobs before it take"
    return ""
