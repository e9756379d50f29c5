"""The local engine: orders become keepers, and what keepers leave behind becomes facts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import assert_never

from rota.core.commands import ChangeMembership, Command, StartWorkers, StopWorkers
from rota.core.model import JobId, Node
from rota.engines.base import Facts, KnownAttempt, LogChunk, LogQuery, Program, WorkerId
from rota.engines.local import containers, hierarchies, logs, ports
from rota.engines.local.folders import Folders
from rota.engines.local.gpus import Gpus, node_of
from rota.engines.local.order import Ending, Fence, Order
from rota.engines.local.render import Draw, Site, render
from rota.engines.local.workers import Workers
from rota.errors import RotaError


class LocalEngine:
    """`root` is the engine's own folder. That no second engine works on it at the same time is the
    caller's business."""

    def __init__(self, root: Path, gpus: Gpus) -> None:
        self._root = root
        self._gpus = gpus
        self._folders = Folders(root)
        self._workers = Workers(self._folders)
        self._site = Site()

    async def start(self, facts: Facts) -> None:
        self._folders.make()
        self._site = Site(
            visible_names=self._gpus.visible_names(),
            has_mps=self._gpus.has_mps(),
            container_tool=containers.find(),
            # Named after the folder, so that daemons on several folders do not meet.
            hierarchies=hierarchies.find(f"rota-{self._root.stat().st_ino}"),
        )
        self._workers.open(facts)

    def render(self, command: Command, program: Program | None = None) -> dict[Fence, Order]:
        """The orders that a start would give to its keepers. Other commands are signals."""
        if not isinstance(command, StartWorkers) or program is None:
            return {}
        return render(command, program, site=self._site, draw=Draw(port=0, nonce="nonce"))

    async def apply(self, command: Command, program: Program | None = None) -> None:
        match command:
            case StartWorkers():
                if program is None:
                    raise RotaError(f"no program to start for job {command.job_id}")
                await self._start(command, program)
            case StopWorkers():
                self._stop(command)
            case ChangeMembership():
                raise RotaError("the local engine cannot change the members of a running job")
            case _:
                assert_never(command)

    async def adopt(self, known: Iterable[KnownAttempt]) -> tuple[WorkerId, ...]:
        attempts = {(each.job_id, each.attempt): each for each in known}
        live = self._folders.live()
        for fence in live:
            if (fence.job_id, fence.attempt) not in attempts:
                self._end_unknown(fence)
            self._workers.resume(fence)
        for attempt in attempts.values():
            self._report_rest(attempt, seen=set(live))
        return tuple(
            WorkerId(JobId(fence.job_id), fence.attempt, fence.worker)
            for fence in self._workers.watched()
        )

    def inventory(self) -> tuple[Node, ...]:
        return (node_of(self._gpus),)

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Of the newest generation that had this worker."""
        fences = self._folders.fences(worker.job_id, worker.attempt)
        fence = max((each for each in fences if each.worker == worker.worker), default=None)
        if fence is None:
            raise RotaError(f"job {worker.job_id} had no worker {worker.worker} in this attempt")
        path = self._folders.worker(fence) / fence.log_name
        return logs.read(path, query, has_ended=lambda: self._folders.ending(fence) is not None)

    def endings(self, job_id: JobId, attempt: int) -> dict[int, Ending]:
        """How the workers of an attempt ended, as far as they have: exit codes with reasons."""
        found = {
            fence.worker: self._folders.ending(fence)
            for fence in self._folders.fences(job_id, attempt)
        }
        return {worker: ending for worker, ending in found.items() if ending is not None}

    def forget(self, job_id: JobId) -> None:
        """Delete the folders of a job that is over, its logs included."""
        self._folders.forget(job_id)

    async def close(self) -> None:
        await self._workers.close()
        hierarchies.remove(self._site.hierarchies)

    async def _start(self, command: StartWorkers, program: Program) -> None:
        first = Fence(command.job_id, command.attempt, command.generation, 0)
        before = self._folders.order(first)
        port = ports.free() if before is None else ports.of(before)
        draw = Draw(port, nonce=os.urandom(8).hex())
        for fence, order in render(command, program, site=self._site, draw=draw).items():
            await self._workers.start(fence, order)

    def _stop(self, command: StopWorkers) -> None:
        job_id, attempt = command.job_id, command.attempt
        self._folders.wish_stop(job_id, attempt, grace_s=command.grace_s)
        fences = self._folders.fences(job_id, attempt)
        numbers = {fence.worker for fence in fences}
        unborn = [worker for worker in range(command.workers) if worker not in numbers]
        for fence in [*fences, *(Fence(job_id, attempt, 0, worker) for worker in unborn)]:
            self._workers.stop(fence)

    def _end_unknown(self, fence: Fence) -> None:
        order = self._folders.order(fence)
        grace_s = order.grace_s if order is not None else 0.0
        self._folders.wish_stop(fence.job_id, fence.attempt, grace_s=grace_s)

    def _report_rest(self, attempt: KnownAttempt, *, seen: set[Fence]) -> None:
        """What ended and was reported just before the daemon died, and what is not there at all
        although it was running."""
        fences = self._folders.fences(attempt.job_id, attempt.attempt)
        for fence in fences:
            if fence not in seen:
                self._workers.resume(fence)
        missing = frozenset(range(attempt.workers)) - {fence.worker for fence in fences}
        if missing and attempt.is_running:
            self._workers.report_lost(attempt.job_id, attempt.attempt, workers=missing)
