"""The local engine: runs each worker on this machine under a supervisor process.

Commands become files and supervisors; exit records of supervisors become events. All state is in
the engine's directory, so that a restarted daemon continues where the previous one stopped.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.job import JobId
from rota.core.model.node import Node, NodeId
from rota.engines.interface import (
    EventSink,
    ExecSpec,
    FoundStart,
    LogChunk,
    LogQuery,
    Program,
    WorkerId,
    WorkerSession,
)
from rota.engines.local import cgroup_discovery, containers, exec_client, worker_spec
from rota.engines.local.container_network import container_pid
from rota.engines.local.gpus import Gpus, node_of
from rota.engines.local.supervisor import proc
from rota.engines.local.supervisor.records import ExitRecord, WorkerKey, WorkerSpec
from rota.engines.local.worker_dirs import WorkerDirs
from rota.engines.local.worker_spec import AttemptParams, HostCapabilities, render
from rota.engines.local.workers import Workers
from rota.engines.logfiles import reader
from rota.errors import RotaError, UserError
from rota.tasks import ErrorIsolation
from rota.thread_pools import SESSIONS

NEVER_JOINED = ExitRecord(0, "the attempt ended before this worker joined")
UNKNOWN = ExitRecord(-1, "no record of this worker", is_lost=True)


class LocalEngine:
    """`root` is the engine's directory. The caller must make sure that no second engine uses it at
    the same time."""

    def __init__(self, root: Path, gpus: Gpus, *, allows_container_endpoint: bool = False) -> None:
        self._root = root
        self._gpus = gpus
        self._dirs = WorkerDirs(root)
        self._workers = Workers(self._dirs)
        self._host = HostCapabilities()
        self._allows_container_endpoint = allows_container_endpoint
        self._isolation = ErrorIsolation("files of an ended job not deleted", raises=())

    async def start(self, emit: EventSink) -> None:
        self._dirs.make()
        self._host = HostCapabilities(
            mps_pipe_dir=self._gpus.mps_pipe_dir(),
            container_tool=containers.find(allows_endpoint=self._allows_container_endpoint),
            hierarchies=cgroup_discovery.find(cgroup_discovery.name_for(self._root)),
        )
        self.inventory()
        self._workers.open(emit)

    def render(
        self, command: Command, program: Program | None = None
    ) -> dict[WorkerKey, WorkerSpec]:
        """Return the worker specs for a command that starts workers; empty for other commands."""
        if not isinstance(command, StartWorkers | ChangeMembership) or program is None:
            return {}
        return render(
            command, program, host=self._host, params=AttemptParams(port=0, nonce="nonce")
        )

    async def apply(self, command: Command, program: Program | None = None) -> None:
        match command:
            case StartWorkers():
                await self._start(command, program)
            case StopWorkers():
                self._stop(command)
            case ChangeMembership():
                await self._change(command, program)
            case ReportWorkers():
                self._report(command)
            case KillWorkers():
                for worker in command.workers:
                    self._workers.kill(WorkerKey(command.job_id, command.attempt, worker))
            case AskToStop():
                pass  # The program gets this request through its report connection.
            case _:
                assert_never(command)

    async def adopt(self) -> tuple[WorkerId, ...]:
        for key in self._dirs.live():
            self._workers.adopt(key)
        return tuple(
            WorkerId(JobId(key.job_id), key.attempt, key.worker) for key in self._workers.watched()
        )

    def recorded_starts(self, *, after: JobId | None) -> list[FoundStart]:
        """The newest start of each job whose end has not been reported, and of each job with a
        larger id than `after`."""
        live: dict[str, list[WorkerKey]] = {}
        for key in self._dirs.live():
            live.setdefault(key.job_id, []).append(key)
        jobs = sorted({*live, *self._dirs.jobs_after(after)})
        isolation = ErrorIsolation("record of a start ignored", raises=())
        found: list[FoundStart] = []
        for job_id in jobs:
            with isolation.of(job=job_id):
                found.append(self._recorded_start(job_id, live.get(job_id, ())))
        return found

    def _recorded_start(self, job_id: str, live: Sequence[WorkerKey]) -> FoundStart:
        attempt = self._dirs.newest_attempt(job_id)
        return FoundStart(
            JobId(job_id),
            attempt,
            self._dirs.job_record(job_id, attempt),
            is_running=any(self._runs(key) for key in live if key.attempt == attempt),
            is_stopped=self._dirs.is_stopped(WorkerKey(job_id, attempt, 0)),
        )

    def _runs(self, key: WorkerKey) -> bool:
        identity = self._dirs.supervisor(key)
        return identity is not None and identity.is_alive()

    def inventory(self) -> tuple[Node, ...]:
        """Return this node and update the names of its GPUs. A worker can use a GPU only after this
        method has seen the GPU."""
        node = node_of(self._gpus)
        self._host = replace(self._host, visible_names=self._gpus.visible_names())
        return (node,)

    def gpu_memory_by_worker(self) -> dict[WorkerId, int]:
        """Return the GPU memory that the processes of each worker use, summed over all GPUs.
        Thread-safe."""
        known = {key.folder: key for key in list(self._workers.watched())}
        found: dict[WorkerId, int] = {}
        for gpu in self._gpus.read():
            for pid, n_bytes in gpu.held_bytes.items():
                if n_bytes and (worker := self._worker_of(pid, known)):
                    found[worker] = found.get(worker, 0) + n_bytes
        return found

    def _worker_of(self, pid: int, known: Mapping[str, WorkerKey]) -> WorkerId | None:
        """Return the worker of a process. The whole marker must match, nonce included: any user can
        put a job id into an environment, but only the worker has its nonce."""
        marker = proc.marker_of(pid)
        key = known.get(marker.rpartition("/")[0])
        spec = None if key is None else self._dirs.spec(key)
        if key is None or spec is None or spec.marker != marker:
            return None
        return WorkerId(JobId(key.job_id), key.attempt, key.worker)

    def give_up_node(self, node_id: NodeId) -> None:
        raise UserError(f"node {node_id} is this machine and it is reachable")

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]:
        key = WorkerKey(worker.job_id, worker.attempt, worker.worker)
        folder = self._dirs.worker(key)
        if not folder.is_dir():
            which = f"worker {worker.worker} in attempt {worker.attempt}"
            raise UserError(f"job {worker.job_id} has no {which}")
        path = folder / key.log_name
        return reader.read(path, query, has_ended=lambda: self._dirs.exit_record(key) is not None)

    async def exec_command(self, worker: WorkerId, command: ExecSpec) -> WorkerSession:
        key = WorkerKey(worker.job_id, worker.attempt, worker.worker)
        spec = self._dirs.spec(key)
        connection = exec_client.connect_supervisor(self._dirs.worker(key))
        if spec is None or connection is None:
            raise exec_client.worker_unreachable(worker)
        return exec_client.start_exec(connection, spec, command=command)

    async def connect(self, worker: WorkerId, port: int) -> WorkerSession:
        key = WorkerKey(worker.job_id, worker.attempt, worker.worker)
        spec = self._dirs.spec(key)
        if spec is None or not self._dirs.has_started(key):
            raise exec_client.worker_unreachable(worker)
        is_container = bool(spec.inside)
        pid = await SESSIONS.run(container_pid, spec.marker) if is_container else None
        return await exec_client.connect(port, namespace_pid=pid)

    def forget_before(self, before_s: float, *, keep: Collection[JobId]) -> list[JobId]:
        """Delete the files, logs included, of jobs that ended before this time; return the jobs."""
        gone = [JobId(each) for each in self._dirs.ended_before(before_s)]
        gone = [job_id for job_id in gone if job_id not in keep]
        forgotten: list[JobId] = []
        for job_id in gone:
            with self._isolation.of(job=job_id):
                self._dirs.forget(job_id)
                forgotten.append(job_id)
        return forgotten

    async def close(self) -> None:
        await self._workers.close()
        cgroup_discovery.remove(self._host.hierarchies)

    async def _start(
        self, command: StartWorkers | ChangeMembership, program: Program | None
    ) -> None:
        """Start workers. A worker that runs or has ended is reported and not started again."""
        if program is None:
            raise RotaError(f"no program to start for job {command.job_id}")
        worker_keys = self._dirs.worker_keys(command.job_id, command.attempt)
        drawn = [spec for key in worker_keys if (spec := self._dirs.spec(key))]
        port = worker_spec.master_port_of(drawn[0]) if drawn else worker_spec.pick_free_port()
        params = AttemptParams(port, nonce=os.urandom(8).hex())
        if program.record is not None:
            self._dirs.write_job_record(command.job_id, command.attempt, record=program.record)
        for key, spec in render(command, program, host=self._host, params=params).items():
            await self._workers.start(key, spec)

    def _stop(self, command: StopWorkers) -> None:
        job_id, attempt = command.job_id, command.attempt
        self._dirs.request_stop(job_id, attempt, grace_s=command.grace_s)
        known = self._dirs.worker_keys(job_id, attempt)
        unstarted = [WorkerKey(job_id, attempt, worker) for worker in command.workers]
        for key in dict.fromkeys([*known, *unstarted]):
            self._workers.stop(key)

    async def _change(self, command: ChangeMembership, program: Program | None) -> None:
        """Start the new members. Leaving workers exit by themselves once the others continue
        without them. The workers report to the daemon that the new generation is complete."""
        known = self._dirs.worker_keys(command.job_id, command.attempt)
        if self._is_over(known):
            for key in known:
                self._workers.resume(key)
            self._finish_unstarted(command, NEVER_JOINED)
        else:
            await self._start(command, program)

    def _report(self, command: ReportWorkers) -> None:
        known = self._dirs.worker_keys(command.job_id, command.attempt)
        if not known:
            # A stop file makes sure that this unknown attempt never starts later.
            self._dirs.request_stop(command.job_id, command.attempt, grace_s=0.0)
            self._finish_unstarted(command, UNKNOWN)
        for key in known:
            if key.worker in command.workers:
                self._workers.resume(key)
        if self._is_over(known):
            self._finish_unstarted(command, NEVER_JOINED)

    def _is_over(self, worker_keys: list[WorkerKey]) -> bool:
        """Whether the attempt is stopped or all its workers have ended: no worker can join then. An
        attempt that lost only some workers may continue with new ones."""
        is_stopped = any(map(self._dirs.is_stopped, worker_keys))
        return is_stopped or (bool(worker_keys) and all(map(self._dirs.exit_record, worker_keys)))

    def _finish_unstarted(
        self, command: ChangeMembership | ReportWorkers, exit_record: ExitRecord
    ) -> None:
        for worker in command.workers:
            key = WorkerKey(command.job_id, command.attempt, worker)
            if not self._dirs.worker(key).exists():
                self._workers.finish_unstarted(key, exit_record)
