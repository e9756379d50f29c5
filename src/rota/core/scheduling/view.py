"""The read-only snapshot that a decision is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.capacity import Capacity
from rota.core.model import Allocation, Job, JobId, Node, NodeId


@dataclass(frozen=True, slots=True)
class Rules:
    """What a lab may choose about scheduling, whatever the policy."""

    round_interval_s: float = 0.0
    min_runtime_s: float = 60.0
    restart_cost_s: float = 30.0
    """What a stop and a start are taken to cost until a job's own were measured."""
    is_guarded: bool = True
    starvation_after_s: float = 3600.0
    backoff_s: float = 10.0
    """The wait before the first retry; it doubles with each failure, up to 10 minutes."""


@dataclass(frozen=True, slots=True)
class View:
    """The state as a round sees it.

    `jobs` are those that may run now, in the order of submission. `planned` is where the last
    plan put them; `free` is what that plan leaves, and is copied before anybody writes on it.
    """

    now: float
    jobs: tuple[Job, ...]
    nodes: Mapping[NodeId, Node]
    planned: Mapping[JobId, Allocation]
    gpu_types: Mapping[JobId, str]
    """The GPU type of each planned job."""
    free: Capacity
    empty: Capacity
    """The nodes as they would be with nothing on them."""
    rules: Rules = field(default_factory=Rules)
