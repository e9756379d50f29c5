"""Responses about the daemon, its nodes, tokens and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HIDDEN = "(hidden)"
"""The value of a setting that only administrators may see."""


@dataclass(frozen=True, slots=True)
class UsageView:
    """Total GPU seconds that a user has used for a project."""

    project: str
    user: str
    gpu_s: float


@dataclass(frozen=True, slots=True)
class LimitUse:
    """How much of a limit the caller uses. `name` is the setting of the limit."""

    name: str
    used: int
    most: int


@dataclass(frozen=True, slots=True)
class Status:
    pid: int
    version: str
    engine: str
    address: str
    """URL of the daemon on TCP, with the fingerprint of its own certificate as the fragment; empty
    if it does not listen on TCP."""
    socket: str
    started_s: float
    policy: str
    nodes: int
    gpus: int
    gpus_held: float
    jobs: dict[str, int] = field(default_factory=dict[str, int])
    """Number of jobs in each state that is not final."""
    trouble: str = ""
    """Why the daemon cannot write to its store; empty if it can."""
    usage: list[UsageView] = field(default_factory=list[UsageView])
    scheduling: str = ""
    """Why no scheduling round ends; empty if rounds end."""
    address_problem: str = ""
    """Why the daemon does not listen on `address`, although it should; empty if it does."""
    flags: dict[str, str] = field(default_factory=dict[str, str])
    """The flags of `rota up` that the next start uses again, by the names of their settings."""
    warnings: list[str] = field(default_factory=list[str])
    """What needs attention although the daemon works, such as missing GPUs."""
    limits: list[LimitUse] = field(default_factory=list[LimitUse])
    """The limits of the caller. A limit of 0 depends on the CPUs of the nodes."""


@dataclass(frozen=True, slots=True)
class SettingView:
    """A setting of the daemon and the file, variable or flag that it comes from."""

    name: str
    value: Any
    """A text, a number, true or false, or a list of texts. Durations are in seconds."""
    origin: str


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
    """A problem of the node; empty if there is none."""
    is_cordoned: bool = False
    """The cluster schedules no new pods on the node; running pods stay."""


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token. `secret` is set only in the response that creates the token."""

    id: str
    user: str
    scope: str
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """The body of every error response: what happened, to what, and what to do next."""

    code: str
    message: str
    hint: str = ""
    details: dict[str, str] = field(default_factory=dict[str, str])
