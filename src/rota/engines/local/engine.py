"""The local engine: orders become keepers, and what keepers leave behind becomes facts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
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
from rota.engines.local import containers, hierarchies, ports, procs, visits
from rota.engines.local.folders import Folders
from rota.engines.local.gpus import Gpus, node_of
from rota.engines.local.order import Ending, Fence, Order
from rota.engines.local.render import Draw, Site, render
from rota.engines.local.workers import Workers
from rota.engines.logfiles import reading
from rota.errors import RotaError, UserError

NEVER_JOINED = Ending(0, "the attempt was over before it could join")
UNKNOWN = Ending(-1, "nobody knows of it", is_lost=True)


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
            has_mps=self._gpus.has_mps(),
            container_tool=containers.find(),
            hierarchies=hierarchies.find(hierarchies.name_for(self._root)),
        )
        self.inventory()
        self._workers.open(facts)

    def render(self, command: Command, program: Program | None = None) -> dict[Fence, Order]:
        """The orders that keepers would be given. Other commands are signals and questions."""
        if not isinstance(command, StartWorkers | ChangeMembership) or program is None:
            return {}
        return render(command, program, site=self._site, draw=Draw(port=0, nonce="nonce"))

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
                    self._workers.kill(Fence(command.job_id, command.attempt, worker))
            case AskToStop():
                pass  # It is for the program.
            case _:
                assert_never(command)

    async def adopt(self) -> tuple[WorkerId, ...]:
        for fence in self._folders.live():
            self._workers.resume(fence, is_found=True)
        return tuple(
            WorkerId(JobId(fence.job_id), fence.attempt, fence.worker)
            for fence in self._workers.watched()
        )

    def inventory(self) -> tuple[Node, ...]:
        """Nothing is started on a GPU before it was seen here, with its name."""
        node = node_of(self._gpus)
        self._site = replace(self._site, visible_names=self._gpus.visible_names())
        return (node,)

    def held_on_cards(self) -> dict[WorkerId, int]:
        """What the processes of each worker hold of the memory of all cards together. For any
        thread."""
        known = {fence.folder: fence for fence in list(self._workers.watched())}
        found: dict[WorkerId, int] = {}
        for card in self._gpus.read():
            for pid, n_bytes in card.held_bytes.items():
                if n_bytes and (worker := self._worker_of(pid, known)):
                    found[worker] = found.get(worker, 0) + n_bytes
        return found

    def _worker_of(self, pid: int, known: Mapping[str, Fence]) -> WorkerId | None:
        """Anybody can carry any words; only a worker carries those that were drawn for it."""
        marker = procs.marker_of(pid)
        fence = known.get(marker.rpartition("/")[0])
        order = None if fence is None else self._folders.order(fence)
        if fence is None or order is None or order.marker != marker:
            return None
        return WorkerId(JobId(fence.job_id), fence.attempt, fence.worker)

    def give_up_node(self, node_id: NodeId) -> None:
        raise UserError(f"node {node_id} is this very machine, and it answers")

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]:
        fence = Fence(worker.job_id, worker.attempt, worker.worker)
        folder = self._folders.worker(fence)
        if not folder.is_dir():
            what = f"job {worker.job_id} had no worker {worker.worker}"
            raise UserError(f"{what} in attempt {worker.attempt}")
        path = folder / fence.log_name
        return reading.read(path, query, has_ended=lambda: self._folders.ending(fence) is not None)

    async def visit(self, worker: WorkerId, visit: Visit) -> Session:
        fence = Fence(worker.job_id, worker.attempt, worker.worker)
        order = self._folders.order(fence)
        line = visits.knock(self._folders.worker(fence))
        if order is None or line is None:
            raise visits.not_there(worker)
        return visits.begin(line, order, visit=visit)

    async def connect(self, worker: WorkerId, port: int) -> Session:
        if not self._folders.has_started(Fence(worker.job_id, worker.attempt, worker.worker)):
            raise visits.not_there(worker)
        return await visits.connect(port)

    def forget_before(self, before_s: float, *, keep: Collection[JobId]) -> list[JobId]:
        """Delete what is left of jobs that were over by then, their logs included."""
        gone = [JobId(each) for each in self._folders.ended_before(before_s)]
        gone = [job_id for job_id in gone if job_id not in keep]
        for job_id in gone:
            self._folders.forget(job_id)
        return gone

    async def close(self) -> None:
        await self._workers.close()
        hierarchies.remove(self._site.hierarchies)

    async def _start(
        self, command: StartWorkers | ChangeMembership, program: Program | None
    ) -> None:
        """Whoever runs or has ended already is reported, not started again."""
        if program is None:
            raise RotaError(f"no program to start for job {command.job_id}")
        fences = self._folders.fences(command.job_id, command.attempt)
        drawn = [order for fence in fences if (order := self._folders.order(fence))]
        port = ports.of(drawn[0]) if drawn else ports.free()
        draw = Draw(port, nonce=os.urandom(8).hex())
        for fence, order in render(command, program, site=self._site, draw=draw).items():
            await self._workers.start(fence, order)

    def _stop(self, command: StopWorkers) -> None:
        job_id, attempt = command.job_id, command.attempt
        self._folders.wish_stop(job_id, attempt, grace_s=command.grace_s)
        known = self._folders.fences(job_id, attempt)
        unborn = [Fence(job_id, attempt, worker) for worker in command.workers]
        for fence in dict.fromkeys([*known, *unborn]):
            self._workers.stop(fence)

    async def _change(self, command: ChangeMembership, program: Program | None) -> None:
        """Newcomers are started. Those who leave end by themselves, when the others go on
        without them; that the new generation stands is theirs to report."""
        known = self._folders.fences(command.job_id, command.attempt)
        if self._is_over(known):
            for fence in known:
                self._workers.resume(fence)
            self._end_unborn(command, NEVER_JOINED)
        else:
            await self._start(command, program)

    def _report(self, command: ReportWorkers) -> None:
        known = self._folders.fences(command.job_id, command.attempt)
        if not known:
            # Of an attempt that we never had, nothing is started later, either.
            self._folders.wish_stop(command.job_id, command.attempt, grace_s=0.0)
            self._end_unborn(command, UNKNOWN)
        for fence in known:
            if fence.worker in command.workers:
                self._workers.resume(fence)
        if self._is_over(known):
            self._end_unborn(command, NEVER_JOINED)

    def _is_over(self, fences: list[Fence]) -> bool:
        """Whether the attempt is to end or all its workers have: it takes nobody in any more. One
        that lost some may go on with others."""
        is_stopped = any(map(self._folders.is_stopped, fences))
        return is_stopped or (bool(fences) and all(map(self._folders.ending, fences)))

    def _end_unborn(self, command: ChangeMembership | ReportWorkers, ending: Ending) -> None:
        for worker in command.workers:
            fence = Fence(command.job_id, command.attempt, worker)
            if not self._folders.worker(fence).exists():
                self._workers.end_unborn(fence, ending)
