"""What every engine can do, and what a worker runs. The daemon knows engines only through this."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.commands import Command
from rota.core.events import Event
from rota.core.model import JobId, Node, NodeId

Facts = Callable[[Event], None]
"""Takes what an engine reports. Never waits, never fails."""


@dataclass(frozen=True, slots=True)
class Account:
    """As whom a worker runs. `uid` None: as the daemon itself."""

    name: str = ""
    home: str = "/"
    shell: str = "/bin/sh"
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """For one worker; 0 is no limit."""

    cpus: float = 0.0
    memory_bytes: int = 0
    pids: int = 0


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The output of a worker takes up to `files` times `file_bytes` on disk."""

    file_bytes: int = 64 * 1024**2
    files: int = 4


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """What a job's workers run. They all run the same; an engine adds what differs (ranks, GPUs)
    to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    account: Account = Account()
    umask: int = 0o022
    grace_s: float = 30.0
    limits: Limits = Limits()
    log: LogLimits = LogLimits()
    image: str = ""
    mounts: tuple[Mount, ...] = ()
    code: str = ""
    """Where what was shipped with the job is to be, if it has to be fetched from the daemon."""
    ports: tuple[int, ...] = ()
    pod: str = ""
    """NAME/UID of a pod that is there already: it is to be placed, not made."""
    owner_uid: str = ""
    """Of the object that stands for the job where there are such: what it owns goes with it."""
    owner_name: str = ""
    """Of the same object, where that is not the job's id."""


@dataclass(frozen=True, slots=True)
class WorkerId:
    job_id: JobId
    attempt: int
    worker: int


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Some output, exactly as written, and when: to within a twentieth of a second. `place` is
    where it ends, in the engine's own words."""

    at_s: float
    output: bytes
    place: str = ""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """All output that is kept, or the last `tail` lines or `tail_bytes`, or what came after
    `since_s` or after the `place` of a chunk; then, with `follow`, whatever comes until the worker
    has ended. Who follows is told the place to begin with, as a chunk without output."""

    tail: int | None = None
    since_s: float = 0.0
    follow: bool = False
    tail_bytes: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What a command is shown on."""

    rows: int
    columns: int
    kind: str = "xterm"


@dataclass(frozen=True, slots=True)
class Visit:
    """A command to run beside a worker, with its rights, in its folder, environment, limits and
    container. Without words: the user's shell. Without a terminal: on pipes."""

    argv: tuple[str, ...] = ()
    terminal: Terminal | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """How a visit ended. `code` is the command's own, or 128 + signal."""

    code: int
    reason: str = ""
    """In words, when the exit code does not say it all."""


class Session(Protocol):
    """A command beside a worker, or a connection to one of its ports. Never reads ahead of who
    asks, and never takes more than was taken on the other side."""

    outputs: tuple[int, ...]
    """What there is to read: 1, and for a command without a terminal 2 as well."""

    async def read(self, output: int) -> bytes:
        """What came, as soon as something came; empty at the end."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Returns when all of it was taken, or when nobody takes anything any more."""
        ...

    async def finish(self) -> None:
        """There is nothing more to write."""
        ...

    def resize(self, rows: int, columns: int) -> None: ...

    async def left(self) -> Left:
        """Waits for the end. Output may still be there to read."""
        ...

    def close(self) -> None:
        """Let go: a command that still runs is ended, with all that it started."""
        ...


class Engine(Protocol):
    """Runs workers somewhere, and says what became of them. It reports and never decides.

    Every order is idempotent: one that comes again is answered with the facts again.
    """

    def render(self, command: Command, program: Program | None = None) -> object:
        """What `apply` would do, without doing it: for golden tests and dry runs."""
        ...

    async def start(self, facts: Facts) -> None:
        """Get ready, and report from now on."""
        ...

    async def apply(self, command: Command, program: Program | None = None) -> None:
        """Carry out an order. What starts workers needs a program. Returns when the order is on
        its way; what comes of it is reported."""
        ...

    async def adopt(self) -> tuple[WorkerId, ...]:
        """After a restart: watch what still runs and report it as found; the kernel says what is
        to stop. Returns what runs."""
        ...

    def inventory(self) -> tuple[Node, ...]: ...

    def give_up_node(self, node_id: NodeId) -> None:
        """An administrator says that a node that does not answer is gone for good, with all that
        ran there. One that answers is refused."""
        ...

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]: ...

    async def visit(self, worker: WorkerId, visit: Visit) -> Session:
        """Run a command beside a worker. It ends before the worker's end is reported."""
        ...

    async def connect(self, worker: WorkerId, port: int) -> Session:
        """To what listens on this port of 127.0.0.1, as the worker sees it."""
        ...

    async def close(self) -> None:
        """Stop watching. Workers go on."""
        ...
