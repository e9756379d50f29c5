"""What a job measured, as it is answered: figures for each size with their errors and origins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rota.core.model import Job
from rota.core.speed import ESTIMATE_ERROR, PRIOR_ERROR, Size, SpeedModel
from rota.store.records import Attempt, Sample
from rota.wire.training import (
    CATEGORY,
    ESTIMATE,
    FITTED,
    HERE,
    MEASURED,
    PRIOR,
    SizeFigure,
    StepFigure,
)


def sizes_seen(samples: Iterable[Sample], attempts: Iterable[Attempt]) -> frozenset[Size]:
    """Sizes at which the job itself reported."""
    across = {each.number: _crosses(each) for each in attempts}
    return frozenset(Size(sample.workers, across.get(sample.attempt, False)) for sample in samples)


def _crosses(attempt: Attempt) -> bool:
    return len({worker.slot.node for worker in attempt.workers}) > 1


def size_figures(job: Job, own: frozenset[Size]) -> list[SizeFigure]:
    """What was measured, and what decisions rest upon, from one worker to one above the most that
    was measured or may be had. `own` are sizes at which the job itself reported."""
    speed = job.speed
    by_size = sorted(speed.measured, key=lambda size: (size.workers, size.crosses))
    measured = [_measured(speed, size, origin=_origin_of(job, size, own=own)) for size in by_size]
    most = max([job.spec.max_workers, *(size.workers for size in by_size)])
    fitted = [_fitted(job, workers, own=own) for workers in range(1, most + 1)]
    return sorted([*measured, *fitted], key=lambda each: (each.workers, each.kind == FITTED))


def _origin_of(job: Job, size: Size, *, own: frozenset[Size]) -> str:
    return HERE if size in own or not job.spec.category else CATEGORY


def _measured(speed: SpeedModel, size: Size, *, origin: str) -> SizeFigure:
    sample = speed.measured[size]
    is_one = size.workers == 1
    return SizeFigure(
        workers=size.workers,
        kind=MEASURED,
        origin=origin,
        crosses_nodes=size.crosses,
        count=sample.count,
        epoch_s=_finite(sample.mean_s),
        epoch_error=_rounded(sample.error),
        speedup=1.0 if is_one else _finite(speed.one_s / sample.mean_s),
        speedup_error=0.0 if is_one else _rounded(math.hypot(sample.error, _one_error(speed))),
    )


def _fitted(job: Job, workers: int, *, own: frozenset[Size]) -> SizeFigure:
    speed = job.speed
    known = {size.workers for size in speed.measured}
    origin = _fit_origin(job, workers, own=own)
    assumed = {ESTIMATE: ESTIMATE_ERROR, PRIOR: PRIOR_ERROR}.get(origin, 0.0)
    if not known or workers in known:
        epoch_error = speed.error
    else:
        epoch_error = math.hypot(speed.error, assumed)
    return SizeFigure(
        workers=workers,
        kind=FITTED,
        origin=origin,
        epoch_s=_finite(speed.epoch_s(workers)),
        epoch_error=_rounded(epoch_error),
        speedup=_finite(speed.speedup(workers)) or None,
        speedup_error=0.0 if workers == 1 else _rounded(max(epoch_error, _one_error(speed))),
    )


def _fit_origin(job: Job, workers: int, *, own: frozenset[Size]) -> str:
    """One size alone says nothing of the others: they keep the shape that was assumed before."""
    known = {size.workers for size in job.speed.measured}
    if workers in known or len(known) > 1:
        is_own = any(_origin_of(job, size, own=own) == HERE for size in job.speed.measured)
        return HERE if is_own else CATEGORY
    return PRIOR if job.spec.estimate is None else ESTIMATE


def _one_error(speed: SpeedModel) -> float:
    """Of the time on one worker, over which every speed-up is told."""
    alone = speed.measured.get(Size(1, crosses=False))
    return speed.error if alone is None else alone.error


def step_figures(samples: Sequence[Sample]) -> list[StepFigure]:
    return [
        StepFigure(
            at_s=round(each.at_s, 3),
            attempt=each.attempt,
            worker=each.worker,
            workers=each.workers,
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
