"""Rejects a workload with a job that can never run on the cluster, before the simulation."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.explain.feasibility import FeasibilityChecker
from rota.core.model.node import Node
from rota.errors import InputError, InputLocation, shown
from rota.simulator.workload import Workload


def check_fits(workload: Workload, nodes: Sequence[Node]) -> None:
    """Raise `InputError` for the first job that the empty cluster cannot run."""
    feasibility = FeasibilityChecker(nodes)
    for job in workload.jobs:
        found = feasibility.of(job.spec)
        if found is not None:
            field = workload.gpus_field if found.field == "gpus" else found.field
            raise InputError(
                InputLocation(workload.name, job.row, field),
                f"job '{shown(job.spec.name)}' can never run: {found.message}",
                found.hint,
            )
