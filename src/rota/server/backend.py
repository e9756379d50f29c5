"""The interface of a backend, the parts that differ with where jobs run, and the local backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from rota.api.auth import ExternalAuthenticator
from rota.api.listeners import TcpAddress
from rota.config.paths import SOCKET_NAME
from rota.core.model.job import JobId
from rota.daemon.access.tokens import load_key
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.jobs.views import WaitReasons
from rota.daemon.launch.checkpoint_dirs import CheckpointDirs
from rota.daemon.launch.interface import LaunchEnvironment
from rota.daemon.launch.local import LocalEnvironment
from rota.daemon.migration.file_journal import FileMoveJournal
from rota.daemon.migration.requests import MoveJournal
from rota.daemon.runtime.controller import Controller
from rota.engines.interface import (
    Engine,
    GpuMemoryReader,
    GpuReader,
    GpuReading,
    WorkerGpus,
    WorkerId,
)
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpu_locks import LockedGpus
from rota.engines.local.gpu_registry import REGISTRY_NAME, GpuRegistry, held_gpus
from rota.engines.local.gpus import Gpus
from rota.engines.local.worker_dirs import WorkerDirs
from rota.store.interface import Store
from rota.store.sqlite.store import SqliteStore
from rota.thread_pools import DEVICES, STORE

SOCKET_DIR_NAME = "door"

BackgroundTask = Coroutine[None, None, None]


class PrunableEngine(Engine, Protocol):
    def forget_before(self, before_s: float, *, keep: Collection[JobId]) -> Collection[JobId]:
        """Delete the files of jobs that ended before this time. Returns these jobs. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What every backend needs. `listen` is the TCP address of the daemon, if it has one."""

    folder: Path
    store_file: Path
    listen: TcpAddress | None
    snapshots: Snapshots


@dataclass(frozen=True, slots=True)
class TaskServices:
    """The services that the background tasks of a backend use."""

    controller: Controller
    submissions: SubmissionService
    reasons: WaitReasons
    forecaster: Forecaster
    clock: Callable[[], float]


class BackgroundTasks(Protocol):
    def create(self, services: TaskServices) -> Sequence[BackgroundTask]:
        """Tasks that run as long as the daemon, in addition to the tasks of all daemons."""
        ...


class NoBackgroundTasks:
    """For a backend without tasks of its own."""

    def create(self, services: TaskServices) -> Sequence[BackgroundTask]:  # noqa: ARG002 - protocol
        return ()


class NoGpuInfo:
    """For a backend that knows nothing about the GPUs of this machine or of workers."""

    def read(self) -> Sequence[GpuReading]:
        return ()

    def gpu_memory_by_worker(self) -> Mapping[WorkerId, int]:
        return {}

    def gpus_of_worker(self, worker: WorkerId) -> Sequence[str]:  # noqa: ARG002 - protocol
        return ()


@dataclass(frozen=True, slots=True)
class Backend:
    name: str
    """The name of the engine."""
    store: Store
    engine: PrunableEngine
    launch_environment: LaunchEnvironment
    key: bytes
    """Signs the tokens of jobs."""
    url: str
    """Where workers reach the daemon."""
    lost: asyncio.Future[None]
    """Fails when this daemon may no longer lead, or can no longer watch the cluster."""
    has_standby: bool
    """Whether another daemon takes over from one that exits: then a broken daemon exits."""
    background_tasks: BackgroundTasks
    gpus: GpuReader
    gpu_memory: GpuMemoryReader
    worker_gpus: WorkerGpus
    move_journal: MoveJournal
    external_auth: ExternalAuthenticator | None = None
    """Authenticates tokens that are not tokens of rota."""


BackendFactory = Callable[[BackendContext], AbstractAsyncContextManager[Backend]]


@asynccontextmanager
async def local_backend(
    context: BackendContext, *, gpus: Gpus, checkpoints: CheckpointDirs
) -> AsyncGenerator[Backend]:
    """Workers are processes of this machine."""
    store = await STORE.run(SqliteStore, context.store_file)
    socket_dir = context.folder / SOCKET_DIR_NAME
    root = context.folder / "engine"
    held = partial(held_gpus, WorkerDirs(root))
    locked = LockedGpus(gpus)
    gpus = GpuRegistry(locked, context.folder / REGISTRY_NAME, held=held)
    engine = LocalEngine(root, gpus)
    try:
        await DEVICES.run(locked.claim)
        yield Backend(
            name="local",
            store=store,
            engine=engine,
            launch_environment=LocalEnvironment(context.snapshots, checkpoints, str(socket_dir)),
            key=load_key(context.folder),
            # Not TCP: while the daemon restarts, another user could hold its port.
            url=f"unix://{socket_dir / SOCKET_NAME}",
            lost=asyncio.get_running_loop().create_future(),
            has_standby=False,
            background_tasks=NoBackgroundTasks(),
            gpus=gpus,
            gpu_memory=engine,
            worker_gpus=NoGpuInfo(),
            move_journal=FileMoveJournal(context.folder / "moves"),
        )
    finally:
        locked.release()
        await STORE.run(store.close)
