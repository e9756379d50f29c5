"""The result of an event or a plan: rows to store first, then commands to send."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import Command
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of a job's history: the state before and after, when, and why."""

    at_s: float
    job_id: JobId
    attempt: int
    before: JobState | None
    after: JobState
    cause: str
    reason: str = ""


@dataclass(slots=True)
class Effects:
    """All results of one event or plan. The caller must store the rows before it sends a
    command."""

    now: float
    jobs: dict[JobId, Job] = field(default_factory=dict[JobId, Job])
    nodes: dict[NodeId, Node | None] = field(default_factory=dict[NodeId, Node | None])
    """New and changed nodes; None for a node that is gone."""
    transitions: list[Transition] = field(default_factory=list[Transition])
    commands: list[Command] = field(default_factory=list[Command])
    errors: list[Exception] = field(default_factory=list[Exception])
    """Errors of the kernel itself, each with one job, which it holds. For the daemon's log."""
