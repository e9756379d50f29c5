"""The output of pods, followed while they run, into files that outlive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import ApiError, Cluster
from rota.engines.kubernetes.bodies import Body
from rota.engines.kubernetes.log_lane import LogLane
from rota.engines.kubernetes.log_lines import Resume, Splitter
from rota.engines.kubernetes.transport import NOT_FOUND, wait_s
from rota.engines.logfiles.writing import LogFile
from rota.errors import UserError, shown

log = structlog.get_logger()

FOLLOWED_AT_ONCE = 512
"""Each takes a connection. The output of others is fetched when somebody asks for it, and at the
end."""
FETCHED_AT_ONCE = 64
"""Of those that are asked for, or over."""
LOOK_AGAIN_S, LAST_LOOK_S = 0.5, 0.1
PATIENCE_S = 5.0
"""So long is waited for the output of one that failed, for whoever asks why."""
LAST_CHANCE_S = 60.0
"""So long the pod of one that is over is kept for its output, if its node is slow to give it."""
TRIES_AFTER_THE_END = 3
NOT_YET, FORBIDDEN = 400, 403
"""The first: its node is there, and has nothing to give."""


class Followers:
    """`is_over` tells whether a worker has ended."""

    def __init__(
        self, cluster: Cluster, root: Path, *, is_over: Callable[[WorkerId], bool]
    ) -> None:
        self._cluster, self._root, self._is_over = cluster, root, is_over
        self._tasks: dict[WorkerId, asyncio.Task[None]] = {}
        self._waiting: dict[WorkerId, bool] = {}
        """Those that wait for their turn, and whether they are pressing."""
        self._room = asyncio.Semaphore(FOLLOWED_AT_ONCE)
        self._pressing_room = asyncio.Semaphore(FETCHED_AT_ONCE)
        self._lane = LogLane(cluster.lull)

    def path(self, worker: WorkerId) -> Path:
        return self._folder(worker) / f"worker-{worker.worker}.log"

    def is_following(self, worker: WorkerId) -> bool:
        return worker in self._tasks

    def follow(self, body: Body, *, is_asked: bool = False) -> None:
        """From now on, or from where it was broken off, to the end. Who is over, or asked for,
        does not wait for a turn."""
        worker = body.worker
        is_pressing = is_asked or self._is_over(worker)
        if is_pressing and not self._waiting.get(worker, True):
            self.give_up(worker)
        if worker not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(body, is_pressing=is_pressing))
            self._tasks[worker] = task
            task.add_done_callback(lambda done: self._done(worker, done))

    def give_up(self, worker: WorkerId) -> None:
        """Its output, where it is not being read: its pod is gone."""
        if worker in self._waiting:
            del self._waiting[worker]
            self._tasks.pop(worker).cancel()

    async def finished(self, worker: WorkerId) -> None:
        """Until all of its output is here; what does not come is not waited for long."""
        await self._wait(worker, PATIENCE_S)

    async def collected(self, worker: WorkerId) -> None:
        """The same, before its pod goes, and with it what is not here."""
        await self._wait(worker, LAST_CHANCE_S)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _wait(self, worker: WorkerId, most_s: float) -> None:
        if task := self._tasks.get(worker):
            await asyncio.wait([task], timeout=most_s)

    def _done(self, worker: WorkerId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(worker) is task:
            del self._tasks[worker]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("output is not followed", job=worker.job_id, exc_info=error)

    def _folder(self, worker: WorkerId) -> Path:
        if names.slug(worker.job_id) != worker.job_id:
            raise UserError(f"job id {worker.job_id!r} cannot name a folder")
        return self._root / worker.job_id / str(worker.attempt) / str(worker.worker)

    async def _run(self, body: Body, *, is_pressing: bool) -> None:
        """Until a look after the end finds nothing new. A connection to the node that breaks ends
        a stream like any other, and a node may call a container over before the last of its output
        is in its file: what was read is all of it only if there is no more."""
        n_failures, is_over = 0, False
        while True:
            if not is_over and self._is_over(body.worker):
                # What went wrong while it ran is not held against its last output.
                n_failures, is_over = 0, True
            try:
                has_more = await self._take_turn(body, is_pressing=is_pressing or is_over)
                n_failures = 0
                if is_over and not has_more:
                    return
                await asyncio.sleep(LAST_LOOK_S if is_over else LOOK_AGAIN_S)
            except ApiError as error:
                n_failures += 1
                is_hopeless = error.status in (FORBIDDEN, NOT_FOUND)
                if is_hopeless or (is_over and n_failures >= TRIES_AFTER_THE_END):
                    log.info("output cannot be had", pod=body.name, error=str(error))
                    return
                if error.status != NOT_YET:
                    self._lane.refused(body.node)
                await asyncio.sleep(wait_s(n_failures))

    async def _take_turn(self, body: Body, *, is_pressing: bool) -> bool:
        """Whether there was something new."""
        self._waiting[body.worker] = is_pressing
        room = self._pressing_room if is_pressing else self._room
        await self._lane.wait(body.node, is_pressing=is_pressing)
        async with room:
            del self._waiting[body.worker]
            return await self._write(body)

    async def _write(self, body: Body) -> bool:
        folder, limits = self._folder(body.worker), body.log
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = LogFile(
            str(self.path(body.worker)), file_bytes=limits.file_bytes, n_files=limits.files
        )
        splitter = Splitter(file, Resume.of(folder / "resume"))
        try:
            await self._read(body, splitter)
        finally:
            file.close()
        if splitter.complaint:
            raise ApiError(
                NOT_YET, "Unreadable", shown(splitter.complaint.decode(errors="replace"))
            )
        return splitter.n_new_bytes > 0

    async def _read(self, body: Body, splitter: Splitter) -> None:
        chunks = self._cluster.pod_log(
            body.name, container=body.container, since=splitter.since, follow=True
        )
        is_whole = False
        try:
            async for chunk in chunks:
                self._lane.heard(body.node)
                splitter.take(chunk)
            self._lane.heard(body.node)
            is_whole = True
        finally:
            splitter.finish(is_whole=is_whole)
