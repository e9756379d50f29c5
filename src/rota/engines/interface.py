"""The interface between the daemon and an engine, and the values that cross it.

The daemon uses engines only through `Engine`. A new engine implements `Engine` and
`WorkerSession` and must pass the conformance suite (`tests/conformance`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.model.commands import Command
from rota.core.model.events import Event
from rota.core.model.job import JobId
from rota.core.model.node import Node, NodeId

EventSink = Callable[[Event], None]
"""Receives the events of an engine. Must not block and must not raise."""


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """The Unix account of a worker. `uid` None: the account of the daemon."""

    name: str = ""
    home: str = "/"
    shell: str = "/bin/sh"
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Resource limits of one worker. 0 means no limit."""

    cpus: float = 0.0
    memory_bytes: int = 0
    pids: int = 0


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of a worker's log: at most `files` files of `file_bytes` each."""

    file_bytes: int = 64 * 1024**2
    files: int = 4


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job at its start and its submission, in the format of the daemon. An engine keeps it with
    the workers, for a daemon whose store has lost the job."""

    job: str
    submission: str


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a job. All workers of the job run the same program; the engine adds the values
    that differ (ranks, GPUs) to the environment of each worker."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    account: UnixAccount = UnixAccount()
    umask: int = 0o022
    grace_s: float = 30.0
    limits: WorkerLimits = WorkerLimits()
    log: LogLimits = LogLimits()
    image: str = ""
    mounts: tuple[Mount, ...] = ()
    code: str = ""
    """Target directory of the shipped code, if the worker has to fetch it from the daemon."""
    ports: tuple[int, ...] = ()
    host_network: bool = False
    """A container uses the network of the machine instead of its own."""
    pod: str = ""
    """NAME/UID of an existing pod. The engine binds this pod and creates none."""
    owner_uid: str = ""
    """UID of the TrainingJob, on a cluster. Kubernetes deletes the objects it owns with it."""
    owner_name: str = ""
    """Name of the TrainingJob, if it differs from the job's id."""
    record: JobRecord | None = None


@dataclass(frozen=True, slots=True)
class FoundStart:
    """The newest start of a job that an engine knows. Without a `record`, an older daemon started
    the job, or the record cannot be trusted. `is_stopped`: a stop of the attempt was requested."""

    job_id: JobId
    attempt: int
    record: JobRecord | None
    is_running: bool = False
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class WorkerId:
    job_id: JobId
    attempt: int
    worker: int


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of output, byte for byte, with its time (accurate to 0.05 s). `place` is the position
    of its end in the log, in a format of the engine."""

    at_s: float
    output: bytes
    place: str = ""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Selects a part of a worker's log.

    Without fields: all stored output. `tail` and `tail_bytes` select the last lines or bytes,
    `since_s` and `place` select the output after a time or after the position of a chunk. With
    `follow`, new output follows until the worker has ended, and the first chunk is empty and
    carries the position where reading starts.
    """

    tail: int | None = None
    since_s: float = 0.0
    follow: bool = False
    tail_bytes: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The size and type of the user's terminal."""

    rows: int
    columns: int
    kind: str = "xterm"


@dataclass(frozen=True, slots=True)
class ExecSpec:
    """A command to run beside a worker: with the worker's account, working directory, environment,
    limits and container. Empty `argv`: the user's shell. No terminal: the command uses pipes."""

    argv: tuple[str, ...] = ()
    terminal: Terminal | None = None


@dataclass(frozen=True, slots=True)
class SessionExit:
    """How a session ended. `code` is the exit code of the command, or 128 + signal."""

    code: int
    reason: str = ""
    """An explanation, where the exit code is not enough."""


class WorkerSession(Protocol):
    """A command that runs beside a worker, or a connection to a port of the worker.

    A session applies backpressure in both directions: it reads only on request, and accepts input
    only as fast as the other side takes it.
    """

    outputs: tuple[int, ...]
    """The output streams: 1 (stdout), and 2 (stderr) for a command without a terminal."""

    async def read(self, output: int) -> bytes:
        """Wait for output and return it; empty at the end of the stream."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Return when the other side has taken the whole chunk, or has closed its input."""
        ...

    async def finish(self) -> None:
        """Close the input."""
        ...

    def resize(self, rows: int, columns: int) -> None: ...

    async def wait(self) -> SessionExit:
        """Wait until the session ends. There may be unread output after that."""
        ...

    def close(self) -> None:
        """Close the session. A running command is killed with all its descendants."""
        ...


class Engine(Protocol):
    """Starts and stops workers and reports events about them. It takes no scheduling decisions.

    Every command is idempotent: a repeated command makes the engine report the same events again.
    """

    def render(self, command: Command, program: Program | None = None) -> object:
        """Return the request that `apply` would send, without side effects. Golden tests and
        `--dry-run` use it."""
        ...

    async def start(self, emit: EventSink) -> None:
        """Start the engine. From now on it reports events to `emit`."""
        ...

    async def apply(self, command: Command, program: Program | None = None) -> None:
        """Execute a command. Commands that start workers need a program. Returns when the command
        is under way; the engine reports the outcome as events."""
        ...

    async def adopt(self) -> tuple[WorkerId, ...]:
        """After a restart of the daemon: watch the workers that still run, report them as found and
        return them. The kernel then decides which of them to stop."""
        ...

    def inventory(self) -> tuple[Node, ...]: ...

    def give_up_node(self, node_id: NodeId) -> None:
        """Treat an unreachable node and all its workers as lost for good, because an administrator
        says so. Raises `UserError` if the node is reachable."""
        ...

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]: ...

    async def exec_command(self, worker: WorkerId, command: ExecSpec) -> WorkerSession:
        """Run a command beside a worker. The engine reports the worker's exit only after the
        command has ended."""
        ...

    async def connect(self, worker: WorkerId, port: int) -> WorkerSession:
        """Connect to this port of 127.0.0.1 in the network of the worker."""
        ...

    async def close(self) -> None:
        """Stop watching. Workers keep running."""
        ...


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. A GPU with a `problem` gets no workers. A running worker holds a GPU
    that `is_missing`: the driver does not report the GPU now, and the worker keeps it."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    utilisation: float = 0.0
    held_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    """Process id -> GPU memory of the process; 0 if the driver does not report it."""
    problem: str = ""
    is_missing: bool = False


class GpuReader(Protocol):
    """Reads the GPUs of this machine."""

    def read(self) -> Sequence[GpuReading]:
        """All GPUs, including unusable ones."""
        ...


class GpuMemoryReader(Protocol):
    """Reads from the driver how much GPU memory each worker holds."""

    def gpu_memory_by_worker(self) -> Mapping[WorkerId, int]:
        """Blocks. May be called from any thread."""
        ...


class WorkerGpus(Protocol):
    """Knows which GPUs a worker has, where the node selects them."""

    def gpus_of_worker(self, worker: WorkerId) -> Sequence[str]:
        """UUIDs; empty while unknown."""
        ...
