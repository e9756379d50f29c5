"""The box at a glance: its GPUs with whoever is on them, and the jobs that run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rota.cli.output import nodes, table
from rota.cli.output.jobs import gpus, outlook, short
from rota.cli.output.table import Column
from rota.cli.output.times import amount, span

if TYPE_CHECKING:
    from rota.wire.box import NodeView, Status
    from rota.wire.jobs import JobView


@dataclass(frozen=True, slots=True)
class Box:
    """`jobs` are those that hold something."""

    status: Status
    nodes: list[NodeView]
    jobs: list[JobView]


def as_dict(box: Box) -> dict[str, object]:
    return {
        "status": asdict(box.status),
        "nodes": [asdict(node) for node in box.nodes],
        "jobs": [asdict(job) for job in box.jobs],
    }


def draw(box: Box, *, now: float) -> list[str]:
    """All lines; a terminal that is too small shows the first of them."""
    names = {job.id: f"{job.name} ({job.user})" for job in box.jobs}
    return [
        _summary(box.status, now),
        *(_machine(node) for node in box.nodes),
        "",
        *table.draw(nodes.columns(box.nodes, names=names)),
        "",
        *(table.draw(_jobs(box.jobs, now=now)) if box.jobs else ["no jobs are running"]),
    ]


def _summary(status: Status, now: float) -> str:
    jobs = ", ".join(f"{count} {state}" for state, count in sorted(status.jobs.items()))
    words = [
        f"rota {status.version}, up {span(now - status.started_s)}",
        status.policy,
        f"{status.gpus_held:g} of {status.gpus} GPUs held",
        f"jobs: {jobs or 'none'}",
        status.trouble,
    ]
    return "; ".join(word for word in words if word)


def _machine(node: NodeView) -> str:
    cpus = f"{node.cpus_used:g} of {node.cpus:g} CPUs"
    memory = f"{amount(node.memory_used_bytes)} of {amount(node.memory_bytes)}"
    words = [f"{cpus} and {memory} asked for", nodes.closed(node)]
    return f"{node.id}: {', '.join(word for word in words if word)}"


def _jobs(jobs: Sequence[JobView], *, now: float) -> list[Column]:
    def column(title: str, cell: Callable[[JobView], str], *, is_number: bool = False) -> Column:
        return Column(title, tuple(cell(job) for job in jobs), is_number=is_number)

    return [
        column("id", lambda job: job.id),
        column("name", lambda job: job.name),
        column("user", lambda job: job.user),
        column("state", lambda job: job.state),
        column("gpus", gpus, is_number=True),
        column("ran", lambda job: span(job.running_s), is_number=True),
        *outlook(jobs, now=now),
        column("why", lambda job: short(job.reason)),
    ]
