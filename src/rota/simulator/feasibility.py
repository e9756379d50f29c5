"""Finds the jobs of a workload that could never run on a cluster, before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.misfit import Misfits
from rota.core.model import Node
from rota.errors import InputError, Where, shown
from rota.simulator.workload import Workload


def check_fits(workload: Workload, nodes: Sequence[Node]) -> None:
    """Raises for the first job that the whole cluster, empty, could not run."""
    misfits = Misfits(nodes)
    for job in workload.jobs:
        found = misfits.of(job.spec)
        if found is not None:
            field = workload.gpus_field if found.field == "gpus" else found.field
            raise InputError(
                Where(workload.name, job.row, field),
                f"job '{shown(job.spec.name)}' can never run: {found.message}",
                found.hint,
            )
