"""What follows from a fact or a plan: rows to write first, then commands to send."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.core.commands import Command
from rota.core.model import Job, JobId, Node, NodeId
from rota.core.states import State


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the story: what a job was, what it became, when and why."""

    at_s: float
    job_id: JobId
    attempt: int
    before: State | None
    after: State
    cause: str
    reason: str = ""


@dataclass(slots=True)
class Effects:
    """What follows from one fact or plan. A command may leave only after the rest is written
    down."""

    now: float
    jobs: dict[JobId, Job] = field(default_factory=dict[JobId, Job])
    nodes: dict[NodeId, Node | None] = field(default_factory=dict[NodeId, Node | None])
    """Nodes that are new or changed; None for one that is gone."""
    transitions: list[Transition] = field(default_factory=list[Transition])
    commands: list[Command] = field(default_factory=list[Command])
