"""The machine and the daemon, as they are answered."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class UsageView:
    """What a person used for a project in all, in GPU seconds."""

    project: str
    user: str
    gpu_s: float


@dataclass(frozen=True, slots=True)
class Status:
    pid: int
    version: str
    engine: str
    address: str
    """Where it listens on TCP, if it does."""
    socket: str
    started_s: float
    policy: str
    nodes: int
    gpus: int
    gpus_held: float
    jobs: dict[str, int] = field(default_factory=dict[str, int])
    """How many jobs are in each state that is not final."""
    trouble: str = ""
    """What keeps it from writing, if something does."""
    usage: list[UsageView] = field(default_factory=list[UsageView])


@dataclass(frozen=True, slots=True)
class GpuView:
    index: int
    type: str
    memory_bytes: int
    used_bytes: int = 0
    utilisation: float = 0.0
    problem: str = ""
    jobs: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class NodeView:
    id: str
    is_draining: bool
    cpus: float
    memory_bytes: float
    cpus_used: float
    memory_used_bytes: float
    gpus: list[GpuView]
    note: str = ""
    """What is the matter with it, if something is."""
    is_cordoned: bool = False
    """Its cluster lets nothing new come to it; what runs there goes on."""


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token as it can be shown: `secret` only in the answer that makes it."""

    id: str
    user: str
    scope: str
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Every error: what happened, to what, what to do next."""

    code: str
    message: str
    hint: str = ""
    details: dict[str, str] = field(default_factory=dict[str, str])
