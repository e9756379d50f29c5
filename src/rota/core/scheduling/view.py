"""The read-only snapshot that a round decides from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.model.allocation import Allocation
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId
from rota.core.placement.capacity import ClusterCapacity


@dataclass(frozen=True, slots=True)
class Rules:
    """Scheduling settings that apply to every policy."""

    round_interval_s: float = 0.0
    min_runtime_s: float = 60.0
    restart_cost_s: float = 30.0
    """The assumed cost of a stop and a start, until a job's own cost is measured."""
    is_guarded: bool = True
    starvation_after_s: float = 3600.0
    backoff_s: float = 10.0
    """The wait before the first retry. It doubles with each failure, up to 10 minutes."""
    max_cpu_jobs: int | None = None
    """Jobs without GPUs that one user may run at once. 0: by the CPUs of the nodes. None: any
    number."""


@dataclass(frozen=True, slots=True)
class View:
    """The state that a round sees.

    `jobs` are the jobs that may run now, in the order of submission. `planned` holds their slots in
    the last plan. `free` is the capacity that the last plan leaves; a round copies it before
    changing it.
    """

    now: float
    jobs: Mapping[JobId, Job]
    nodes: Mapping[NodeId, Node]
    planned: Mapping[JobId, Allocation]
    gpu_types: Mapping[JobId, str]
    """The GPU type of each planned job."""
    free: ClusterCapacity
    empty: ClusterCapacity
    """The capacity of the nodes with no workers on them."""
    rules: Rules = field(default_factory=Rules)
    kept_out: frozenset[JobId] = frozenset()
    """Queued jobs that are not in `jobs` because their array runs as many jobs as it may."""
    over_limit: frozenset[JobId] = frozenset()
    """Queued jobs that are not in `jobs` because their user runs as many jobs without GPUs as one
    person may."""
