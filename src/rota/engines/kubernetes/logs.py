"""The output of pods, followed while they run, into files that outlive them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import structlog

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import ApiError, Cluster
from rota.engines.kubernetes.bodies import Body
from rota.engines.kubernetes.log_lines import Resume, Splitter
from rota.engines.kubernetes.transport import wait_s
from rota.engines.logfiles.writing import LogFile
from rota.errors import UserError

log = structlog.get_logger()

FOLLOWED_AT_ONCE = 512
"""Each takes a connection. The output of others is fetched when somebody asks for it, and at the
end."""
LOOK_AGAIN_S = 0.5
PATIENCE_S = 5.0
TRIES_AFTER_THE_END = 3
SILENT_NODE_S = 30.0
"""A node that gives out no logs is not asked again for so long."""
NOT_YET, FORBIDDEN, NOT_FOUND = 400, 403, 404


class Followers:
    """`is_over` tells whether a worker has ended."""

    def __init__(
        self, cluster: Cluster, root: Path, *, is_over: Callable[[WorkerId], bool]
    ) -> None:
        self._cluster, self._root, self._is_over = cluster, root, is_over
        self._tasks: dict[WorkerId, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(FOLLOWED_AT_ONCE)
        self._silent_until: dict[str, float] = {}

    def path(self, worker: WorkerId) -> Path:
        return self._folder(worker) / f"worker-{worker.worker}.log"

    def is_following(self, worker: WorkerId) -> bool:
        return worker in self._tasks

    def follow(self, body: Body, *, is_asked: bool = False) -> None:
        """From now on, or from where it was broken off, to the end."""
        if body.worker not in self._tasks:
            room = contextlib.nullcontext() if is_asked else self._room
            task = asyncio.get_running_loop().create_task(self._run(body, room))
            self._tasks[body.worker] = task
            task.add_done_callback(lambda done: self._done(body.worker, done))

    async def finished(self, worker: WorkerId) -> None:
        """Until all of its output is here; what does not come is not waited for long."""
        if task := self._tasks.get(worker):
            await asyncio.wait([task], timeout=PATIENCE_S)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _done(self, worker: WorkerId, task: asyncio.Task[None]) -> None:
        self._tasks.pop(worker, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("output is not followed", job=worker.job_id, error=str(error))

    def _folder(self, worker: WorkerId) -> Path:
        if names.slug(worker.job_id) != worker.job_id:
            raise UserError(f"job id {worker.job_id!r} cannot name a folder")
        return self._root / worker.job_id / str(worker.attempt) / str(worker.worker)

    async def _run(
        self, body: Body, room: contextlib.AbstractAsyncContextManager[None, bool | None]
    ) -> None:
        folder = self._folder(body.worker)
        async with room:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            limits = body.log
            file = LogFile(
                str(self.path(body.worker)), file_bytes=limits.file_bytes, n_files=limits.files
            )
            try:
                await self._read_to_the_end(body, Splitter(file, Resume.of(folder / "resume")))
            finally:
                file.close()

    async def _read_to_the_end(self, body: Body, splitter: Splitter) -> None:
        n_failures = 0
        while True:
            # Before reading: what was written before the end is read in this pass.
            is_last = self._is_over(body.worker)
            await self._calm(body.node)
            try:
                await self._read(body, splitter)
                if is_last:
                    return
                await asyncio.sleep(LOOK_AGAIN_S)
            except ApiError as error:
                n_failures += 1
                is_hopeless = error.status in (FORBIDDEN, NOT_FOUND)
                if is_hopeless or (is_last and n_failures >= TRIES_AFTER_THE_END):
                    log.info("output cannot be had", pod=body.name, error=str(error))
                    return
                if error.status != NOT_YET:
                    loop = asyncio.get_running_loop()
                    self._silent_until[body.node] = loop.time() + SILENT_NODE_S
                await asyncio.sleep(wait_s(n_failures))

    async def _read(self, body: Body, splitter: Splitter) -> None:
        chunks = self._cluster.pod_log(
            body.name, container=body.container, since=splitter.since, follow=True
        )
        is_whole = False
        try:
            async for chunk in chunks:
                splitter.take(chunk)
            is_whole = True
            self._silent_until.pop(body.node, None)
        finally:
            splitter.finish(is_whole=is_whole)

    async def _calm(self, node: str) -> None:
        """Not while a node that did not answer is left alone."""
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self._silent_until.get(node, 0.0) - now))
