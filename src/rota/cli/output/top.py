"""The view of `rota top`: a summary, nodes and GPUs with their jobs, and running jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rota.cli.output import nodes, table
from rota.cli.output.format import amount, span
from rota.cli.output.jobs import CUT, DROPPABLE, eta_columns, gpus, job_object, shortened
from rota.cli.output.table import Column

if TYPE_CHECKING:
    from rota.wire.daemon import NodeView, Status
    from rota.wire.jobs import JobView


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The state of a daemon and its nodes, with the jobs that hold GPUs, CPUs or memory."""

    status: Status
    nodes: list[NodeView]
    jobs: list[JobView]


def as_dict(overview: ClusterOverview) -> dict[str, object]:
    return {
        "status": asdict(overview.status),
        "nodes": [nodes.node_object(node) for node in overview.nodes],
        "jobs": [job_object(job) for job in overview.jobs],
    }


def draw(overview: ClusterOverview, *, now: float) -> list[str]:
    """The lines of the view. A small terminal shows the first ones."""
    names = {job.id: f"{job.name} ({job.user})" for job in overview.jobs}
    return [
        _summary(overview.status, now),
        *(_node(node) for node in overview.nodes),
        "",
        *table.draw(nodes.fitting(nodes.columns(overview.nodes, names=names))),
        "",
        *(_drawn(overview.jobs, now=now) if overview.jobs else ["no jobs are running"]),
    ]


def _drawn(jobs: Sequence[JobView], *, now: float) -> list[str]:
    return table.draw(table.fit(_jobs(jobs, now=now), droppable=DROPPABLE, cut=CUT))


def _summary(status: Status, now: float) -> str:
    jobs = ", ".join(f"{count} {state}" for state, count in sorted(status.jobs.items()))
    parts = [
        f"rota {status.version}, up {span(now - status.started_s)}",
        status.policy,
        f"{status.gpus_held:g} of {status.gpus} GPUs held",
        f"jobs: {jobs or 'none'}",
        status.trouble,
    ]
    return "; ".join(part for part in parts if part)


def _node(node: NodeView) -> str:
    cpus = f"{node.cpus_used:g} of {node.cpus:g} CPUs"
    memory = f"{amount(node.memory_used_bytes)} of {amount(node.memory_bytes)}"
    parts = [f"{cpus} and {memory} requested", nodes.closed(node)]
    return f"{node.id}: {', '.join(part for part in parts if part)}"


def _jobs(jobs: Sequence[JobView], *, now: float) -> list[Column]:
    def column(title: str, cell: Callable[[JobView], str], *, is_number: bool = False) -> Column:
        return Column(title, tuple(cell(job) for job in jobs), is_number=is_number)

    return [
        column("id", lambda job: job.id),
        column("name", lambda job: job.name),
        column("user", lambda job: job.user),
        column("state", lambda job: job.state),
        column("gpus", gpus, is_number=True),
        column("running", lambda job: span(job.running_s), is_number=True),
        *eta_columns(jobs, now=now),
        column("reason", lambda job: shortened(job.reason)),
    ]
