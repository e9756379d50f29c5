"""Measurements of a job for its owner: speeds, workers, metrics, and a hint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rota.core.estimation.service_time import lost_work
from rota.core.estimation.speed_model import ESTIMATE_ERROR, PRIOR_ERROR, MeasuredSize, SpeedModel
from rota.core.model.allocation import n_nodes
from rota.core.model.job import Ended, Job, JobId, Queued
from rota.daemon.jobs.eta import has_reported, progress_of
from rota.daemon.training.report_service import ReportService
from rota.daemon.training.worker_progress import WorkerProgress
from rota.store.interface import Store
from rota.store.records import Attempt, SampleRecord
from rota.wire.jobs import JobDetails
from rota.wire.training import (
    CATEGORY,
    ESTIMATE,
    FITTED,
    HERE,
    MEASURED,
    PRIOR,
    Handling,
    JobProfile,
    SizeFigure,
    StepFigure,
    WorkerFigure,
)

UNSAVED_S = 600.0
"""Unsaved work above which the owner gets a hint."""


MAX_FITTED = 512
"""The largest size with a fitted speed, unless a larger one was measured: a job may allow 100,000
workers."""


@dataclass(frozen=True, slots=True)
class LiveWorkers:
    """The last reports of the workers of a job. `slow` maps each straggler to the ratio of its step
    time to that of the others."""

    workers: Sequence[WorkerProgress] = ()
    slow: Mapping[int, float] = field(default_factory=dict[int, float])


def live_workers_of(training: ReportService, job_id: JobId) -> LiveWorkers:
    return LiveWorkers(training.workers(job_id), training.slow_workers(job_id))


def profile_of(job: Job, store: Store, *, live: LiveWorkers) -> JobProfile:
    samples = store.samples(job.id)
    own = sizes_seen(samples, store.attempts(job.id)) | _size_now(job)
    lead = live.workers[0] if live.workers else None
    return JobProfile(
        id=job.id,
        name=job.spec.name,
        category=job.spec.category,
        min_gpus=job.spec.gpus_of(job.spec.min_workers),
        max_gpus=job.spec.gpus_of(job.spec.max_workers),
        epochs=job.epochs if progress_of(job) is not None else None,
        epochs_done=job.epochs_done,
        sizes=size_figures(job, own),
        steps=step_figures(job, samples),
        workers=worker_figures(job, live) or _last_worker_figures(samples),
        handling=Handling(
            start_s=job.start_s if lead is None or lead.start_s is None else lead.start_s,
            save_s=job.save_s if lead is None or lead.save_s is None else lead.save_s,
            load_s=job.load_s if lead is None or lead.load_s is None else lead.load_s,
            stop_s=job.stop_s or None,
        ),
        metrics=metrics_of(live) or _last_metrics(samples),
        lost_s=job.lost_s,
    )


def _size_now(job: Job) -> frozenset[MeasuredSize]:
    """The current size, if the job was measured at it: its samples may not be written yet."""
    held = job.allocation
    if not held or job.epochs_done <= job.epochs_done_at_start:
        return frozenset()
    return frozenset({MeasuredSize(job.units, crosses=n_nodes(held) > 1)})


def worker_figures(job: Job, live: LiveWorkers) -> list[WorkerFigure]:
    nodes = {number: slot.node for number, slot in zip(job.numbers, job.members, strict=True)}
    return [
        WorkerFigure(
            worker=each.worker,
            node=nodes.get(each.worker, ""),
            step_s=each.step_s,
            samples_per_s=each.samples_per_s,
            memory_bytes=each.memory_bytes,
            gpu_memory_bytes=each.gpu_bytes_held,
            slowness=live.slow.get(each.worker),
        )
        for each in live.workers
    ]


def _last_worker_figures(samples: Sequence[SampleRecord]) -> list[WorkerFigure]:
    """The worker of the last sample, for a job without live workers."""
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


def metrics_of(live: LiveWorkers) -> dict[str, float]:
    """The newest value of each metric; if workers differ, the first worker's."""
    found: dict[str, float] = {}
    for worker in reversed(live.workers):
        found |= worker.metrics
    return found


def _last_metrics(samples: Sequence[SampleRecord]) -> dict[str, float]:
    found = (dict(each.metrics) for each in reversed(samples) if each.metrics)
    return next(found, dict[str, float]())


def with_live_details(
    details: JobDetails, job: Job, *, live: LiveWorkers, is_crowded: bool
) -> JobDetails:
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


def hint(job: Job, live: LiveWorkers, *, has_end: bool, is_crowded: bool) -> str:
    """The most useful hint for the owner. `has_end`: the expected end is known; `is_crowded`: there
    are too many jobs for a forecast."""
    if isinstance(job.phase, Ended):
        return ""
    if live.slow:
        who = "worker" if len(live.slow) == 1 else "workers"
        which = ", ".join(map(str, sorted(live.slow)))
        return f"{who} {which} slowed down the others: check the GPUs, the node and the data"
    unsaved = lost_work(job)
    if unsaved is not None and unsaved.seconds > UNSAVED_S:
        return "a stop now would lose more than ten minutes of work: save checkpoints more often"
    if math.isinf(job.speed.one_s):
        if live.workers or has_reported(job):
            return "the expected end is known after the first epoch"
        return "the run time is unknown: submit with --hours, or report epochs from the program"
    if math.isinf(job.epochs):
        return "the expected end is unknown: the program reports epochs, but not their total number"
    if isinstance(job.phase, Queued) and not has_end:
        if is_crowded:
            return "no expected end: there are too many queued jobs for a forecast"
        return "no expected end: the run time of the jobs before it is unknown"
    return ""


def sizes_seen(
    samples: Iterable[SampleRecord], attempts: Iterable[Attempt]
) -> frozenset[MeasuredSize]:
    """The sizes at which the job itself was measured."""
    across = {each.number: _crosses(each) for each in attempts}
    return frozenset(
        MeasuredSize(sample.workers, across.get(sample.attempt, False)) for sample in samples
    )


def _crosses(attempt: Attempt) -> bool:
    return len({worker.slot.node for worker in attempt.workers}) > 1


def size_figures(job: Job, own: frozenset[MeasuredSize]) -> list[SizeFigure]:
    """Measured and fitted speeds, from 1 unit to the largest measured or allowed size, but no
    unmeasured size above `MAX_FITTED`. `own` are the sizes at which the job itself was measured."""
    speed = job.speed
    by_size = sorted(speed.measured, key=lambda size: (size.workers, size.crosses))
    measured = [_measured(job, size, own=own) for size in by_size]
    largest = min(job.spec.max_workers, MAX_FITTED)
    most = max([largest, *(size.workers for size in by_size)])
    fitted = [_fitted(job, workers, own=own) for workers in range(1, most + 1)]
    return sorted([*measured, *fitted], key=lambda each: (each.gpus, each.kind == FITTED))


def _origin_of(job: Job, size: MeasuredSize, *, own: frozenset[MeasuredSize]) -> str:
    return HERE if size in own or not job.spec.category else CATEGORY


def _measured(job: Job, size: MeasuredSize, *, own: frozenset[MeasuredSize]) -> SizeFigure:
    speed = job.speed
    sample = speed.measured[size]
    is_one = size.workers == 1
    return SizeFigure(
        gpus=job.spec.gpus_of(size.workers),
        kind=MEASURED,
        origin=_origin_of(job, size, own=own),
        crosses_nodes=size.crosses,
        count=sample.count,
        epoch_s=_finite(sample.mean_s),
        epoch_error=_rounded(sample.error),
        speedup=1.0 if is_one else _finite(speed.one_s / sample.mean_s),
        speedup_error=0.0 if is_one else _rounded(math.hypot(sample.error, _one_error(speed))),
    )


def _fitted(job: Job, workers: int, *, own: frozenset[MeasuredSize]) -> SizeFigure:
    speed = job.speed
    known = {size.workers for size in speed.measured}
    origin = _fit_origin(job, workers, own=own)
    assumed = {ESTIMATE: ESTIMATE_ERROR, PRIOR: PRIOR_ERROR}.get(origin, 0.0)
    if not known or workers in known:
        epoch_error = speed.error
    else:
        epoch_error = math.hypot(speed.error, assumed)
    return SizeFigure(
        gpus=job.spec.gpus_of(workers),
        kind=FITTED,
        origin=origin,
        epoch_s=_finite(speed.epoch_s(workers)),
        epoch_error=_rounded(epoch_error),
        speedup=_finite(speed.speedup(workers)) or None,
        speedup_error=0.0 if workers == 1 else _rounded(max(epoch_error, _one_error(speed))),
    )


def _fit_origin(job: Job, workers: int, *, own: frozenset[MeasuredSize]) -> str:
    """A measurement at one size does not change the assumed scaling to other sizes."""
    known = {size.workers for size in job.speed.measured}
    if workers in known or len(known) > 1:
        is_own = any(_origin_of(job, size, own=own) == HERE for size in job.speed.measured)
        return HERE if is_own else CATEGORY
    return PRIOR if job.spec.estimate is None else ESTIMATE


def _one_error(speed: SpeedModel) -> float:
    """The error of the time on one worker, to which every speed-up refers."""
    alone = speed.measured.get(MeasuredSize(1, crosses=False))
    return speed.error if alone is None else alone.error


def step_figures(job: Job, samples: Sequence[SampleRecord]) -> list[StepFigure]:
    return [
        StepFigure(
            at_s=round(each.at_s, 3),
            attempt=each.attempt,
            worker=each.worker,
            gpus=job.spec.gpus_of(each.workers),
            epochs_done=each.epochs_done,
            step_s=each.step_s,
            samples_per_s=each.samples_per_s,
            memory_bytes=each.memory_bytes,
            gpu_memory_bytes=each.gpu_memory_bytes,
            metrics=dict(each.metrics),
        )
        for each in samples
    ]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _rounded(error: float) -> float:
    return round(error, 4) if math.isfinite(error) else 0.0
