"""The Kubernetes engine: orders become pods, and what becomes of pods becomes facts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import assert_never

from rota.core.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model import JobId, Node, NodeId
from rota.engines.base import Facts, LogChunk, LogQuery, Program, Session, Visit, WorkerId
from rota.engines.kubernetes.api import Cluster, Object
from rota.engines.kubernetes.bodies import Body, Stage
from rota.engines.kubernetes.crew import NEVER_JOINED, UNKNOWN
from rota.engines.kubernetes.endings import Ending, unborn
from rota.engines.kubernetes.manifests import Seat, pod_of, seats
from rota.engines.kubernetes.scene import Scene
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.logfiles import reading
from rota.errors import RotaError, UserError


class KubernetesEngine:
    """`root` is the engine's own folder, for the output of workers. That no second engine works on
    the same namespace at the same time is the caller's business (the lease)."""

    def __init__(self, cluster: Cluster, settings: KubernetesSettings, *, root: Path) -> None:
        self.cluster = cluster
        self._settings, self._root = settings, root
        self._scene = Scene(cluster, settings, root=root)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def watch(self) -> None:
        """Be in the picture before it is our turn to `start`; nothing is told or done yet."""
        await self._scene.watch()

    async def start(self, facts: Facts) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._root.mkdir, mode=0o700, parents=True, exist_ok=True)
        await self._scene.open(facts)

    async def broken(self) -> None:
        """Raises when we no longer see what happens, and never will again."""
        fault = await self._scene.tasks.broken()
        what = f"a bug in rota ({type(fault).__name__}): it no longer sees the cluster"
        raise RotaError(what, "start it again, and report it") from fault

    async def close(self) -> None:
        """Pods go on."""
        await self._scene.close()

    def render(self, command: Command, program: Program | None = None) -> dict[WorkerId, Object]:
        """The pods that would be made. Other commands are deletes and questions."""
        if not isinstance(command, StartWorkers | ChangeMembership) or program is None:
            return {}
        return {
            seat.worker: pod_of(seat, program, settings=self._settings) for seat in seats(command)
        }

    async def apply(self, command: Command, program: Program | None = None) -> None:
        match command:
            case StartWorkers():
                self._start(command, program)
            case StopWorkers():
                self._stop(command)
            case ChangeMembership():
                self._change(command, program)
            case ReportWorkers():
                self._report(command)
            case KillWorkers():
                self._kill(command)
            case AskToStop():
                pass  # It is for the program.
            case _:
                assert_never(command)

    async def adopt(self) -> tuple[WorkerId, ...]:
        return self._scene.adopt()

    def spare(self, job_ids: frozenset[JobId]) -> None:
        """Nobody knows what became of these jobs: what runs of them is left alone, and counted."""
        self._scene.spare(job_ids)

    def inventory(self) -> tuple[Node, ...]:
        """As the watches have it: nothing is asked for."""
        return self._scene.stock.nodes()

    def cards(self, worker: WorkerId) -> tuple[str, ...]:
        """Those that its node picked for it, or the one that it shares; once that is known."""
        body = self._scene.crew.bodies.get(worker)
        if body is None:
            return ()
        return body.devices.get(self._settings.gpu_resource, (body.card,) if body.card else ())

    def give_up_node(self, node_id: NodeId) -> None:
        """Should it come back, it is taken in again."""
        known = {node.id: node for node in self.inventory()}
        if node_id in known and not known[node_id].note:
            hint = "drain it, or wait until the cluster calls it not ready"
            raise UserError(f"node {node_id} answers: it is not lost", hint)
        self._scene.stock.give_up(node_id)
        self._scene.look_at_nodes()

    # -- beside a worker ------------------------------------------------------------------------

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]:
        scene = self._scene
        path, body = scene.followers.path(worker), scene.crew.bodies.get(worker)
        if body is not None and body.stage is Stage.RUNNING:
            scene.followers.follow(body, is_asked=True)
        elif body is None and not path.parent.is_dir() and worker not in scene.crew.endings:
            what = f"job {worker.job_id} had no worker {worker.worker}"
            raise UserError(f"{what} in attempt {worker.attempt}")
        return reading.read(path, query, has_ended=lambda: self._is_silent(worker))

    async def visit(self, worker: WorkerId, visit: Visit) -> Session:
        from rota.engines.kubernetes import sessions  # noqa: PLC0415 - only for who visits

        body = self._running(worker)
        container = body.container
        return await sessions.visit(self.cluster, body.name, visit=visit, container=container)

    async def connect(self, worker: WorkerId, port: int) -> Session:
        from rota.engines.kubernetes import sessions  # noqa: PLC0415 - only for who connects

        return await sessions.connect(self.cluster, self._running(worker).name, port=port)

    def forget_before(self, before_s: float, *, keep: Collection[JobId]) -> list[JobId]:
        """Delete what is left of jobs that were over by then, their logs included. Called from a
        thread of its own."""
        gone = [
            JobId(folder.name)
            for folder in self._root.iterdir()
            if folder.name not in keep and _newest_s(folder) < before_s
        ]
        for job_id in gone:
            shutil.rmtree(self._root / job_id, ignore_errors=True)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._forget, job_id)
        return gone

    def _forget(self, job_id: JobId) -> None:
        self._scene.ends.let_go_of(self._scene.crew.attempts_of(job_id))

    def _running(self, worker: WorkerId) -> Body:
        body = self._scene.crew.bodies.get(worker)
        if body is None or body.stage is not Stage.RUNNING:
            what = f"worker {worker.worker} of job {worker.job_id} is not running"
            raise UserError(what, "'rota show JOB' tells how it is")
        return body

    def _is_silent(self, worker: WorkerId) -> bool:
        scene = self._scene
        is_over = worker in scene.crew.endings or worker not in scene.crew.bodies
        return is_over and not scene.followers.is_following(worker)

    # -- orders ---------------------------------------------------------------------------------

    def _start(self, command: StartWorkers | ChangeMembership, program: Program | None) -> None:
        """Whoever runs or has ended already is reported, not started again."""
        if program is None:
            raise RotaError(f"no program to start for job {command.job_id}")
        if program.pod:
            plain = self._scene.plain.bring_up(seats(command)[0], program.pod)
            self._scene.tasks.spawn(plain, job=command.job_id)
        crew, coming = self._scene.crew, list[tuple[Seat, Object]]()
        for seat in seats(command):
            worker, body = seat.worker, crew.bodies.get(seat.worker)
            if body is None and worker not in crew.endings and crew.is_to_end(worker):
                self._scene.end(worker, unborn(crew.wish(worker)))
            else:
                self._scene.resume(worker)
            if (
                worker not in crew.endings
                and (body is None or body.stage is Stage.GATED)
                and not program.pod
            ):
                coming.append((seat, pod_of(seat, program, settings=self._settings)))
        self._scene.ends.let_go_of(crew.older((command.job_id, command.attempt)))
        if coming:
            master = seats(command)[0].worker
            births = self._scene.births.bring_up(coming, master=master)
            self._scene.tasks.spawn(births, job=command.job_id)

    def _stop(self, command: StopWorkers) -> None:
        crew, attempt = self._scene.crew, (command.job_id, command.attempt)
        crew.stop(attempt, command.grace_s)
        named = [WorkerId(command.job_id, command.attempt, each) for each in command.workers]
        for worker in dict.fromkeys([*crew.members(attempt), *named]):
            self._scene.end(worker, unborn(crew.wish(worker)))

    def _kill(self, command: KillWorkers) -> None:
        crew = self._scene.crew
        for number in command.workers:
            worker = WorkerId(command.job_id, command.attempt, number)
            crew.doom(worker)
            self._scene.end(worker, unborn(crew.wish(worker)))

    def _change(self, command: ChangeMembership, program: Program | None) -> None:
        """Newcomers are started. Those who leave end by themselves, when the others go on
        without them; that the new generation stands is theirs to report."""
        attempt = command.job_id, command.attempt
        if not self._scene.crew.is_over(attempt):
            self._start(command, program)
            return
        for worker in self._scene.crew.members(attempt):
            self._scene.resume(worker)
        self._end_unborn(command, NEVER_JOINED)

    def _report(self, command: ReportWorkers) -> None:
        crew, attempt = self._scene.crew, (command.job_id, command.attempt)
        known = crew.members(attempt)
        if not known:
            # Of an attempt that we never had, nothing is started later, either.
            crew.stop(attempt, 0.0)
            self._end_unborn(command, UNKNOWN)
            return
        for worker in known:
            if worker.worker in command.workers:
                self._scene.resume(worker)
        if crew.is_over(attempt):
            self._end_unborn(command, NEVER_JOINED)

    def _end_unborn(self, command: ChangeMembership | ReportWorkers, ending: Ending) -> None:
        crew = self._scene.crew
        for number in command.workers:
            worker = WorkerId(command.job_id, command.attempt, number)
            if worker not in crew.bodies and worker not in crew.endings:
                self._scene.tell_end(worker, crew.end_unborn(worker, ending))


def _newest_s(folder: Path) -> float:
    return max(each.stat().st_mtime for each in (folder, *folder.glob("*/*/*")))
