"""The workers of this machine: start and stop them, watch their supervisors, report events.

Every step is written to disk (`worker_dirs.py`) before it is executed, so that a restarted daemon
continues where the previous one stopped.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterable

import structlog

from rota.core.model.events import Event, WorkersExited, WorkersFound, WorkersLost, WorkersStarted
from rota.core.model.job import JobId
from rota.engines.interface import EventSink
from rota.engines.local.fork_server_client import ForkServerClient
from rota.engines.local.idle_supervisors import IdleSupervisors, SupervisorHandle
from rota.engines.local.orphans import kill_orphans
from rota.engines.local.supervisor import proc
from rota.engines.local.supervisor.records import (
    KILLED_CODE,
    NEVER_STARTED,
    STOPPED_CODE,
    ExitRecord,
    WorkerKey,
    WorkerSpec,
)
from rota.engines.local.worker_dirs import WorkerDirs
from rota.tasks import Tasks
from rota.thread_pools import CLEAN_UP

log = structlog.get_logger()

POLL_S = 0.02
"""Poll interval for the short time between the fork of a supervisor and its first record."""
TRY_AGAIN_S = 1.0
"""Retry interval while the machine has no free file descriptor, process or disk space."""


class Workers:
    """Watches the supervisor of each worker, by pidfd, and reports events to the sink of `open`."""

    def __init__(self, dirs: WorkerDirs) -> None:
        self._dirs = dirs
        self._fork_server = ForkServerClient(dirs.jobs, self._on_message)
        self._watched: dict[WorkerKey, SupervisorHandle] = {}
        self._idle = IdleSupervisors()
        self._ended_early: set[WorkerKey] = set()
        """Workers whose end was reported before the fork of their supervisor."""
        self._tasks = Tasks()
        self._emit: EventSink = _ignore_event

    def open(self, emit: EventSink) -> None:
        self._emit = emit
        self._fork_server.start()

    async def close(self) -> None:
        for key in list(self._watched):
            self._unwatch(key)
        self._idle.close()
        self._fork_server.close()
        await self._tasks.close()

    def watched(self) -> Iterable[WorkerKey]:
        return self._watched

    async def start(self, key: WorkerKey, spec: WorkerSpec) -> None:
        dirs = self._dirs
        is_known = key in self._watched or self._fork_server.has_asked(key.folder)
        if is_known or dirs.supervisor(key) or dirs.exit_record(key):
            self.resume(key)
        elif self._is_to_end(key):
            self.stop(key)
        else:
            dirs.prepare(key, spec)
            if supervisor := self._idle.take(key):
                self._watched[key] = supervisor
                self._fork_server.ask(key.folder, supervisor.pid)
            else:
                self._fork_server.ask(key.folder)

    def kill(self, key: WorkerKey) -> None:
        """Kill this worker alone, at once. The request is on disk before the supervisor is
        signalled."""
        if not self._dirs.exit_record(key):
            self._dirs.request_kill(key)
        self.stop(key)

    def stop(self, key: WorkerKey) -> None:
        """Stop a worker. The request (stop of the attempt, or kill of the worker) must already be
        on disk."""
        if exit_record := self._dirs.exit_record(key):
            self._report_end(key, exit_record)
        elif watched := self._watched.get(key):
            watched.send(signal.SIGTERM)
        elif identity := self._dirs.supervisor(key):
            self._watch(key, identity)
        else:
            self._stop_unstarted(key)

    def adopt(self, key: WorkerKey) -> None:
        """Watch a worker of an earlier daemon."""
        self._isolated(key, lambda: self.resume(key, is_found=True))

    def resume(self, key: WorkerKey, *, is_found: bool = False) -> None:
        """Watch a worker, whatever its state, and report that state. `is_found`: report a running
        worker as found instead of started."""
        if exit_record := self._dirs.exit_record(key):
            self._report_end(key, exit_record)
        elif watched := self._watched.get(key):
            # The supervisor's message may have arrived before that of the fork server.
            if watched.is_started or self._dirs.has_started(key):
                self._report_started(key)
        elif identity := self._dirs.supervisor(key):
            self._watch(key, identity)
            self._spawn(key, lambda: self._await_start(key, is_found=is_found))
        elif self._is_to_end(key):
            self.stop(key)

    def _is_to_end(self, key: WorkerKey) -> bool:
        return self._dirs.is_stopped(key) or self._dirs.is_kill_requested(key)

    # -- watching -------------------------------------------------------------------------------

    def _on_message(self, words: list[str]) -> None:
        """Handle a message of the fork server or of a supervisor."""
        key = WorkerKey.of_folder(words[1])
        self._isolated(key, lambda: self._handle(key, words))

    def _isolated(self, key: WorkerKey, work: Callable[[], None]) -> None:
        """Do work for one worker. After an error, report the worker's state again and again until
        that succeeds, so that no exit is lost."""
        try:
            work()
        except Exception as error:
            log.error("worker event not handled", worker=key.folder, exc_info=error)
            self._spawn(key, lambda: self._resume_later(key))

    async def _resume_later(self, key: WorkerKey) -> None:
        await asyncio.sleep(TRY_AGAIN_S)
        self.resume(key)

    def _handle(self, key: WorkerKey, words: list[str]) -> None:
        match words:
            case ["forked", _, rest]:
                pid, start_ticks = map(int, rest.split())
                identity = proc.ProcessIdentity(pid, start_ticks, proc.boot_id())
                try:
                    self._watch_forked(key, identity)
                except OSError:
                    self._spawn(key, lambda: self._watch_late(key, identity))
            case ["started", _]:
                if watched := self._watched.get(key):
                    watched.is_started = True
                self._report_started(key)
            case ["ended", _, text]:
                self._worker_ended(key, text)
            case _:
                reason = f"no supervisor: {' '.join(words[2:])}"
                self._spawn(key, lambda: self._lose(key, reason=reason))

    def _watch_forked(self, key: WorkerKey, identity: proc.ProcessIdentity) -> None:
        watched = self._watched.get(key)
        if watched is not None and watched.pid != identity.pid:
            # The idle supervisor that was to run the worker had ended.
            self._unwatch(key)
        if key not in self._watched:
            self._watch(key, identity)
        if key in self._ended_early:
            self._ended_early.remove(key)
            self._release(key)

    async def _watch_late(self, key: WorkerKey, identity: proc.ProcessIdentity) -> None:
        self._watch_forked(key, identity)
        await self._await_start(key)

    def _watch(self, key: WorkerKey, identity: proc.ProcessIdentity) -> None:
        pidfd = identity.open()
        if pidfd is None:
            self._supervisor_ended(key)
            return
        self._watched[key] = supervisor = SupervisorHandle(identity.pid, pidfd, key)
        asyncio.get_running_loop().add_reader(pidfd, self._on_exit, supervisor)
        if self._is_to_end(key):
            self.stop(key)

    def _unwatch(self, key: WorkerKey) -> SupervisorHandle | None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.close()
        return watched

    def _on_exit(self, supervisor: SupervisorHandle) -> None:
        """Handle the end of a supervisor."""
        key = supervisor.key
        if key is None:
            self._idle.drop(supervisor)
            supervisor.close()
        elif self._fork_server.has_asked(key.folder):
            # An idle supervisor ended before it took the worker.
            self._unwatch(key)
            self._fork_server.ask(key.folder)
        else:
            self._isolated(key, lambda: self._supervisor_ended(key))

    def _release(self, key: WorkerKey) -> SupervisorHandle | None:
        """Let the supervisor of an ended worker wait for another one."""
        supervisor = self._watched.pop(key, None)
        if supervisor is not None:
            self._idle.put(supervisor)
        return supervisor

    def _worker_ended(self, key: WorkerKey, text: str) -> None:
        """Handle the end of a worker. `text` is the exit record, as its supervisor sent it."""
        exit_record = ExitRecord.of_json(json.loads(text))
        supervisor = self._release(key)
        if supervisor is None:
            self._ended_early.add(key)
        if exit_record.started_s and not (supervisor and supervisor.is_started):
            self._report_started(key)
        self._report_end(key, exit_record)

    async def _await_start(self, key: WorkerKey, *, is_found: bool = False) -> None:
        """Poll the supervisor's file until the worker has started: an adopted supervisor has no
        connection to this daemon."""
        while watched := self._watched.get(key):
            if self._dirs.has_started(key):
                watched.is_started = True
                self._report_started(key, is_found=is_found)
                return
            await asyncio.sleep(POLL_S)

    def _supervisor_ended(self, key: WorkerKey) -> None:
        watched = self._unwatch(key)
        try:
            exit_record = self._dirs.exit_record(key)
        except OSError:
            # `_lose` reads the exit record again before it reports a loss.
            exit_record = None
        if exit_record is None:
            self._spawn(key, lambda: self._lose(key, reason="supervisor died"))
            return
        if exit_record.started_s and not (watched and watched.is_started):
            self._report_started(key)
        self._report_end(key, exit_record)

    async def _lose(self, key: WorkerKey, *, reason: str) -> None:
        """Handle a supervisor that died without an exit record: kill the remaining processes of the
        worker, then report the loss."""
        while not (lock := self._dirs.lock(key)):
            # A second supervisor ended because the first one holds the lock: watch the first one.
            if identity := self._dirs.supervisor(key):
                self._watch(key, identity)
                self._spawn(key, lambda: self._await_start(key))
                return
            await asyncio.sleep(POLL_S)
        with lock:
            spec, n_ended = self._dirs.spec(key), 0
            if spec is not None:
                n_ended = await CLEAN_UP.run(kill_orphans, spec)
            exit_record = self._dirs.exit_record(key) or self._lost(key, reason)
            exit_record = self._settle(key, exit_record._replace(n_left_behind=n_ended))
        self._report_end(key, exit_record)

    def _lost(self, key: WorkerKey, reason: str) -> ExitRecord:
        """A supervisor writes its file before it starts the worker. Without the file, nothing ran:
        the machine is at fault, not the program."""
        what = reason if self._dirs.supervisor(key) else f"could not be started: {reason}"
        return ExitRecord(-1, what, is_lost=True, ended_s=time.time())

    def _settle(self, key: WorkerKey, exit_record: ExitRecord) -> ExitRecord:
        """Write the exit record. If the disk is full, only report it: a worker without processes
        must not hold its GPU."""
        try:
            self._dirs.write_exit_record(key, exit_record)
        except OSError as error:
            return exit_record._replace(
                reason=f"{exit_record.reason}: {(error.strerror or '').lower()}"
            )
        return exit_record

    def _stop_unstarted(self, key: WorkerKey) -> None:
        code = KILLED_CODE if self._dirs.is_kill_requested(key) else STOPPED_CODE
        if not self.finish_unstarted(key, ExitRecord(code, NEVER_STARTED, is_stopped=True)):
            self._spawn(key, lambda: self._stop_again(key))

    def finish_unstarted(self, key: WorkerKey, exit_record: ExitRecord) -> bool:
        """Make sure that an unstarted worker never starts. Returns False if a supervisor is just
        starting: then either it sees the stop request or this daemon sees its file."""
        lock = self._dirs.lock(key)
        if lock is None:
            return False
        with lock:
            if self._dirs.supervisor(key):
                return False
            self._dirs.write_exit_record(key, exit_record._replace(ended_s=time.time()))
        self._report_end(key, exit_record)
        return True

    async def _stop_again(self, key: WorkerKey) -> None:
        await asyncio.sleep(POLL_S)
        self.stop(key)

    def _spawn(self, key: WorkerKey, operation: Callable[[], Awaitable[None]]) -> None:
        self._tasks.spawn(_retry(key, operation), worker=key.folder)

    # -- events ---------------------------------------------------------------------------------

    def _report_started(self, key: WorkerKey, *, is_found: bool = False) -> None:
        kind = WorkersFound if is_found else WorkersStarted
        self._emit(kind(JobId(key.job_id), key.attempt, frozenset({key.worker})))

    def _report_end(self, key: WorkerKey, exit_record: ExitRecord) -> None:
        job_id, attempt, worker = JobId(key.job_id), key.attempt, key.worker
        if exit_record.is_lost:
            self._emit(WorkersLost(job_id, attempt, frozenset({worker}), exit_record.reason))
        else:
            codes, is_retriable = {worker: exit_record.code}, exit_record.is_retriable
            exited = WorkersExited(
                job_id, attempt, codes, exit_record.reason, is_retriable=is_retriable
            )
            self._emit(exited)
        self._dirs.close(key)


async def _retry(key: WorkerKey, operation: Callable[[], Awaitable[None]]) -> None:
    """Retry until the operation succeeds: an unwatched worker would hold its GPU for ever."""
    last = ""
    while True:
        try:
            return await operation()
        except Exception as error:
            problem = repr(error)
            if problem != last:
                cause = None if isinstance(error, OSError) else error
                log.warning(
                    "worker operation failed, retrying",
                    worker=key.folder,
                    error=str(error),
                    exc_info=cause,
                )
            last = problem
        await asyncio.sleep(TRY_AGAIN_S)


def _ignore_event(_: Event) -> None:
    pass
