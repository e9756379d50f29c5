"""Runs one daemon from start to stop: backend, services, listeners, signals."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import structlog

from rota.api.app import Services, create
from rota.api.listeners import RunningServer, TcpListener, unix_socket
from rota.api.uvicorn_protocol import create_server
from rota.config.paths import SOCKET_NAME
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.runtime.clock import FILE_NAME as CLOCK_FILE
from rota.daemon.runtime.clock import DaemonClock
from rota.errors import RotaError, UnavailableError
from rota.remains import REMAINS
from rota.server.backend import SOCKET_DIR_NAME, Backend, BackendContext, PrunableEngine
from rota.server.composition import Daemon, build_daemon
from rota.server.settings import Settings
from rota.thread_pools import CLEAN_UP, JOB_FILES

log = structlog.get_logger()
REMAINS_NAME = "remains.json"
PRUNE_S = 3600.0
"""Pause between two deletions of unused shipped code, logs, checkpoints and ended jobs."""
LARGE_BLOCK_BYTES = 256 * 1024
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
"""Parameters of mallopt(3)."""
SWITCH_S = 0.001
"""How soon a long scheduling round yields the interpreter to requests."""


async def serve(settings: Settings, *, ready: Callable[[], object]) -> None:
    """Run until a signal or a request stops the daemon, or until it may no longer lead. Calls
    `ready` once the daemon answers requests."""
    sys.setswitchinterval(SWITCH_S)
    _return_freed_memory()
    with _cancel_on_sigterm():
        await _serve(settings, ready=ready)


@contextmanager
def _cancel_on_sigterm() -> Generator[None]:
    """Exit on SIGTERM also before the daemon is ready, and while it waits to lead. The first
    process of a container has no default handler for SIGTERM."""
    loop, task, is_stopped = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def stop() -> None:
        if not is_stopped.is_set() and task is not None:
            is_stopped.set()
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not is_stopped.is_set():
            raise
        log.info("stopped before ready")


async def _serve(settings: Settings, *, ready: Callable[[], object]) -> None:
    await JOB_FILES.run(REMAINS.keep_in, settings.folder / REMAINS_NAME)
    limits = settings.limits
    snapshots = await JOB_FILES.run(
        Snapshots,
        settings.folder / "snapshots",
        quota_bytes=limits.max_shipped_bytes,
        quota_files=limits.max_shipped_files,
    )
    context = BackendContext(settings.folder, settings.store_file, settings.listen, snapshots)
    tcp = TcpListener(settings.listen)
    async with (
        settings.backend(context) as backend,
        _running(settings, backend, snapshots=snapshots, tcp=tcp) as daemon,
        _listeners(settings, daemon.services, tcp=tcp),
    ):
        services, controller = daemon.services, daemon.controller
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, services.cluster_service.stopping.set)
        _freeze_gc()
        ready()
        log.info("ready", folder=str(settings.folder), pid=os.getpid())
        broken = controller.broken if backend.has_standby else asyncio.Event()
        await _wait_for_first(services.cluster_service.stopping, broken, lost=backend.lost)
        log.info("stopping")
        services.report_service.release_waiters()
        services.rendezvous.release_waiters()
    if backend.lost.done() and not backend.lost.cancelled():
        backend.lost.result()
    if broken.is_set():
        raise UnavailableError(controller.trouble)


async def _wait_for_first(*events: asyncio.Event, lost: asyncio.Future[None]) -> None:
    waits = [asyncio.ensure_future(each.wait()) for each in events]
    await asyncio.wait({*waits, lost}, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()


def _freeze_gc() -> None:
    """Exclude all objects of the libraries, about a hundred thousand, from garbage collection.
    Each full collection would delay requests for as long as hundreds of submits take."""
    gc.collect()
    gc.freeze()


def _return_freed_memory() -> None:
    """Let glibc give large blocks back to the system when they are freed. By default it raises its
    threshold after the first large block, and the memory of one large request stays in use."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(M_ARENA_MAX, 2)


@contextmanager
def _without_gc() -> Generator[None]:
    """Pause the garbage collector while the daemon loads its jobs, and exclude them from later
    collections. Jobs have no reference cycles, and each collection would visit all of them: a fifth
    of the time to load 60,000 jobs."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@asynccontextmanager
async def _running(
    settings: Settings, backend: Backend, *, snapshots: Snapshots, tcp: TcpListener
) -> AsyncGenerator[Daemon]:
    clock = DaemonClock(settings.folder / CLOCK_FILE)
    daemon = build_daemon(settings, backend, snapshots=snapshots, clock=clock, tcp=tcp)
    controller = daemon.controller
    pruning = _prune(daemon, backend.engine, settings=settings)
    for task in (pruning, clock.run(), *(each.run() for each in daemon.early_tasks)):
        controller.tasks.spawn_critical(task)
    try:
        with _without_gc():
            await controller.start(daemon.launcher.program, listeners=daemon.listeners)
        for task in backend.background_tasks.create(daemon.task_services):
            controller.tasks.spawn_critical(task)
        for each in daemon.late_tasks:
            controller.tasks.spawn_critical(each.run())
        yield daemon
    finally:
        await controller.close()


async def _prune(daemon: Daemon, engine: PrunableEngine, *, settings: Settings) -> None:
    """No job depends on this task: after any error, retry at the next interval."""
    while True:
        await asyncio.sleep(PRUNE_S)
        await prune_once(daemon, engine, settings=settings)


async def prune_once(daemon: Daemon, engine: PrunableEngine, *, settings: Settings) -> None:
    """Delete shipped code, logs, checkpoints, jobs and history after their retention periods. The
    files of a job are deleted before its rows: after a crash in between, the rows still name the
    job, and the next run deletes them. A step that fails does not stop the others, but the rows
    stay if files could not be deleted."""
    controller = daemon.controller
    now, live = time.time(), frozenset(controller.jobs).union(controller.unreadable_jobs)
    with _pruning_step("shipped code"):
        await daemon.launcher.prune_snapshots(live, keep_workdir_s=settings.keep_workdir_s)
    with _pruning_step("files and rows of jobs"):
        gone = await CLEAN_UP.run(engine.forget_before, now - settings.keep_logs_s, keep=live)
        await daemon.launcher.remove_checkpoints(gone)
        keep = live.union(controller.dependencies)
        keep_jobs_s = daemon.retention.limits.jobs_s
        await CLEAN_UP.run(engine.forget_before, now - keep_jobs_s, keep=keep)
        await daemon.retention.prune()


@contextmanager
def _pruning_step(what: str) -> Generator[None]:
    try:
        yield
    except (RotaError, OSError) as error:
        log.warning("pruning failed", step=what, error=str(error))
    except Exception:
        log.exception("pruning failed", step=what)


@asynccontextmanager
async def _listeners(
    settings: Settings, services: Services, *, tcp: TcpListener
) -> AsyncGenerator[None]:
    create_listener = partial(
        create_server,
        create(services),
        timeouts=settings.timeouts,
        limiter=services.connections,
    )
    paths = [settings.folder / SOCKET_NAME, _socket_dir(settings.folder) / SOCKET_NAME]
    local = RunningServer(create_listener(), [unix_socket(path) for path in paths])
    try:
        await local.wait_until_started()
        await tcp.start(create_listener)
        yield
    finally:
        await asyncio.gather(local.stop(), tcp.stop())
        for path in paths:
            path.unlink(missing_ok=True)


def _socket_dir(folder: Path) -> Path:
    """A folder that holds only a socket. Containers mount this folder: a mounted socket would stay
    the old socket after a restart of the daemon."""
    socket_dir = folder / SOCKET_DIR_NAME
    socket_dir.mkdir(exist_ok=True)
    socket_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return socket_dir
