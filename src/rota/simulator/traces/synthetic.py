"""Generates Philly-like workloads of any size from a seed: `synthetic:jobs=500,seed=1`.

- Durations are log-normal with the median of Philly (1,133 s in the extract of 82,247 jobs) and
  its 90th percentile (11,233 s), up to one week.
- Sizes are powers of two, mostly 1. There are more large jobs than in Philly (7 %), so that packing
  and fragmentation matter.
- Submissions follow the time of day, with a peak in the afternoon. They cover as much time as the
  jobs need to request `load` times the capacity of a cluster with `gpus` GPUs.
- A fraction of the jobs (`elastic`) accepts half to four times its requested size. Speed-ups are
  concave, of four kinds from nearly linear to communication-bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from random import Random

from rota.core.model.job import Estimate, JobSpec
from rota.errors import UserError, shown
from rota.simulator.workload import Scaling, TraceEntry, Workload, workload_of

PREFIX = "synthetic"
DAY_S = 86_400.0
MEDIAN_S = 1_133.0
SIGMA = 1.79
"""ln(11,233 / 1,133) over the 90th percentile of the normal distribution, 1.2816."""
MIN_DURATION_S = 10.0
MAX_DURATION_S = 7 * DAY_S
DAILY_SWING = 0.6
"""The busiest hour has (1 + 0.6) / (1 - 0.6) = 4 times the submissions of the quietest hour."""
SIZES = {1: 0.70, 2: 0.10, 4: 0.10, 8: 0.07, 16: 0.02, 32: 0.01}
GROWTH = 4
MAX_WORKERS = 128
OVERHEADS = {"linear": 0.005, "good": 0.02, "middling": 0.06, "poor": 0.15}
"""Kinds of jobs: the speed-up on n workers is n / (1 + overhead * (n - 1))."""
SPEEDUPS = {
    kind: tuple(n / (1 + overhead * (n - 1)) if n else 0.0 for n in range(MAX_WORKERS + 1))
    for kind, overhead in OVERHEADS.items()
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters after `synthetic:`."""

    jobs: int = 500
    seed: int = 0
    gpus: int = 64
    load: float = 0.9
    elastic: float = 0.5


LIMITS: dict[str, tuple[float, float]] = {
    "jobs": (1, 1_000_000),
    "seed": (0, 2**63),
    "gpus": (1, 1_000_000),
    "load": (0.001, 1_000),
    "elastic": (0, 1),
}


def synthetic(text: str, seed: int | None = None) -> Workload:
    """Generate the workload of `jobs=500,seed=1,...`. `seed` applies if the text has no seed."""
    parameters = parse(text, seed)
    random = Random(parameters.seed)  # noqa: S311 - must repeat
    specs = [_job(random, parameters, number=number) for number in range(1, parameters.jobs + 1)]
    work_gpu_s = sum(_duration_s(spec) * spec.requested_workers for spec, _ in specs)
    span_s = work_gpu_s / (parameters.load * parameters.gpus)
    times = sorted(_submission(random, span_s) for _ in specs)
    name = f"{PREFIX}:{_written(parameters)}"
    return workload_of(
        name,
        (
            TraceEntry(round(time - times[0], 3), number, spec, runtime)
            for number, (time, (spec, runtime)) in enumerate(
                zip(times, specs, strict=True), start=1
            )
        ),
    )


def parse(text: str, seed: int | None = None) -> Parameters:
    parameters = Parameters() if seed is None else Parameters(seed=seed)
    given: set[str] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if name not in LIMITS or not equals:
            known = ", ".join(LIMITS)
            raise _error(
                f"unknown parameter '{shown(part)}'", f"known: {known}; write them as in jobs=500"
            )
        if name in given:
            raise _error(f"{name} is given twice", "give it once")
        given.add(name)
        parameters = replace(parameters, **{name: _value(name, value)})
    return parameters


def _value(name: str, text: str) -> float:
    least, most = LIMITS[name]
    whole = isinstance(getattr(Parameters(), name), int)
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = math.nan
    if "_" in text or not text.isascii():  # Python would parse these
        value = math.nan
    if not least <= value <= most:
        kind = "whole number" if whole else "number"
        raise _error(f"{name}='{shown(text)}' is not a {kind} between {least:,} and {most:,}")
    return value


def _error(message: str, hint: str = "") -> UserError:
    return UserError(f"{PREFIX}: {message}", hint)


def _written(parameters: Parameters) -> str:
    return ",".join(f"{item.name}={getattr(parameters, item.name)}" for item in fields(parameters))


def _job(random: Random, parameters: Parameters, *, number: int) -> tuple[JobSpec, Scaling]:
    sizes = [size for size in SIZES if size <= parameters.gpus]
    size = random.choices(sizes, [SIZES[size] for size in sizes])[0]
    kind = random.choice(list(OVERHEADS))
    drawn_s = random.lognormvariate(math.log(MEDIAN_S), SIGMA)
    duration_s = round(min(max(drawn_s, MIN_DURATION_S), MAX_DURATION_S), 3)
    is_elastic = random.random() < parameters.elastic
    speedups = SPEEDUPS[kind]
    spec = JobSpec(
        name=f"{kind}-{number}",
        min_workers=max(1, size // 2) if is_elastic else size,
        max_workers=min(size * GROWTH, parameters.gpus) if is_elastic else size,
        requested_workers=size,
        estimate=Estimate(duration_s, size, speedups),
        category=kind,
    )
    return spec, Scaling(duration_s * speedups[size], speedups)


def _duration_s(spec: JobSpec) -> float:
    return spec.estimate.seconds if spec.estimate else 0.0


def _submission(random: Random, span_s: float) -> float:
    """Draw a submission time within the span by rejection sampling over the time of day."""
    while True:
        time_s = random.uniform(0.0, span_s)
        intensity = 1 + DAILY_SWING * math.sin(2 * math.pi * time_s / DAY_S)
        if random.uniform(0.0, 1 + DAILY_SWING) < intensity:
            return time_s
