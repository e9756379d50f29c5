"""Creates jobs from traces that give a duration at one number of GPUs only (Philly, ITP)."""

from __future__ import annotations

from rota.core.estimation.speed_model import PRIOR_SPEEDUPS
from rota.core.model.job import Estimate, JobSpec
from rota.simulator.traces.csv_table import CsvRow
from rota.simulator.workload import Scaling

MAX_WORKERS = len(PRIOR_SPEEDUPS) - 1
"""The largest size that the prior speed-ups cover. A larger job needs its own speed-ups."""


def fixed_size(
    row: CsvRow, *, gpus_field: str, name: str, project: str = "", category: str = ""
) -> tuple[JobSpec, Scaling]:
    """Return a job with one GPU per worker and the fixed size of the trace.

    The column with the duration must be called `duration`.
    """
    n_gpus = row.whole(gpus_field)
    if n_gpus > MAX_WORKERS:
        raise row.error(gpus_field, f"{n_gpus} GPUs exceed the limit of {MAX_WORKERS}")
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
    return spec, Scaling(duration_s * PRIOR_SPEEDUPS[n_gpus], PRIOR_SPEEDUPS)
