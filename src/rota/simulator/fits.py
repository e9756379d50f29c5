"""Finds the jobs of a workload that could never run on a cluster, before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.misfit import Misfit, misfit
from rota.core.model import JobSpec, Node
from rota.errors import InputError, Where, shown
from rota.simulator.workload import Workload


def check_fits(workload: Workload, nodes: Sequence[Node]) -> None:
    """Raises for the first job that the whole cluster, empty, could not run."""
    known: dict[tuple[object, ...], Misfit | None] = {}
    for job in workload.jobs:
        key = _needs(job.spec)
        if key not in known:
            known[key] = misfit(job.spec, nodes)
        found = known[key]
        if found is not None:
            field = workload.gpus_field if found.field == "gpus" else found.field
            raise InputError(
                Where(workload.name, job.row, field),
                f"job '{shown(job.spec.name)}' can never run: {found.message}",
                found.hint,
            )


def _needs(spec: JobSpec) -> tuple[object, ...]:
    return (
        (spec.min_workers, spec.requested_workers, spec.max_workers, spec.gpus, spec.share),
        (spec.gpu_types, spec.node_labels, spec.cpus, spec.memory_bytes),
    )
