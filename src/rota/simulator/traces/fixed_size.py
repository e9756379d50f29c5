"""Jobs of traces that give a duration at one number of GPUs and nothing else (Philly, ITP)."""

from __future__ import annotations

from rota.core.model import Estimate, JobSpec
from rota.core.speed import PRIOR
from rota.simulator.traces.table import Row
from rota.simulator.workload import Scaling

MAX_WORKERS = len(PRIOR.speedups) - 1
"""Beyond this, a job has to say itself how it speeds up."""


def fixed_size(
    row: Row, *, gpus_field: str, name: str, project: str = "", category: str = ""
) -> tuple[JobSpec, Scaling]:
    """One GPU a worker, always as many as the trace says; `duration` is the column's name."""
    n_gpus = row.whole(gpus_field)
    if n_gpus > MAX_WORKERS:
        raise row.wrong(gpus_field, f"{n_gpus} GPUs are more than {MAX_WORKERS}")
    duration_s = row.positive("duration")
    spec = JobSpec(
        name=name,
        project=project,
        min_workers=n_gpus,
        max_workers=n_gpus,
        requested_workers=n_gpus,
        estimate=Estimate(duration_s, n_gpus),
        category=category,
    )
    return spec, Scaling(duration_s * PRIOR.speedups[n_gpus], PRIOR.speedups)
