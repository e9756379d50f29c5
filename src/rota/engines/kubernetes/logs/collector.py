"""Follow the output of running pods, and write it to files that outlive the pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from rota.engines.interface import LogLimits, WorkerId
from rota.engines.kubernetes.logs.pacing import LogPacer
from rota.engines.kubernetes.logs.parser import LogStreamParser, ResumePoint
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.state import PodState
from rota.engines.logfiles.writer import LogFile
from rota.errors import UserError, shown
from rota.kube.client import KubeClient
from rota.kube.errors import NOT_FOUND, ApiError
from rota.kube.http import retry_delay_s

log = structlog.get_logger()

MAX_FOLLOWED = 512
"""Each takes a connection. Output of other pods is fetched on request and at their end."""
MAX_FETCHED = 64
"""For pods that are requested or have ended."""
RETRY_S, LAST_RETRY_S = 0.5, 0.1
FAILURE_OUTPUT_TIMEOUT_S = 5.0
"""How long the end of a failed worker is held back for its output, which explains the failure."""
FINAL_OUTPUT_TIMEOUT_S = 60.0
"""How long an ended pod is kept for its output if its node is slow."""
MAX_FINAL_TRIES = 3
NOT_YET, FORBIDDEN = 400, 403
"""Status 400: the node responds, but has no output yet."""


class LogCollector:
    """`is_over`: whether a worker has ended."""

    def __init__(
        self,
        client: KubeClient,
        root: Path,
        *,
        limits: LogLimits,
        is_over: Callable[[WorkerId], bool],
    ) -> None:
        self._client, self._root, self._limits, self._is_over = client, root, limits, is_over
        self._tasks: dict[WorkerId, asyncio.Task[None]] = {}
        self._waiting: dict[WorkerId, bool] = {}
        """Workers that wait for their turn, and whether they are urgent."""
        self._slots = asyncio.Semaphore(MAX_FOLLOWED)
        self._urgent_slots = asyncio.Semaphore(MAX_FETCHED)
        self._pacer = LogPacer(client.wait_idle)

    def path(self, worker: WorkerId) -> Path:
        return self._folder(worker) / f"worker-{worker.worker}.log"

    def is_following(self, worker: WorkerId) -> bool:
        return worker in self._tasks

    def follow(self, pod_state: PodState, *, is_requested: bool = False) -> None:
        """Follow a pod from where its log ends. Ended or requested pods do not wait for a turn."""
        worker = pod_state.worker
        is_urgent = is_requested or self._is_over(worker)
        if is_urgent and not self._waiting.get(worker, True):
            self.give_up(worker)
        if worker not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(pod_state, is_urgent=is_urgent))
            self._tasks[worker] = task
            task.add_done_callback(lambda done: self._done(worker, done))

    def give_up(self, worker: WorkerId) -> None:
        """The pod is gone: stop waiting for its output, unless it is being read."""
        if worker in self._waiting:
            del self._waiting[worker]
            self._tasks.pop(worker).cancel()

    async def finished(self, worker: WorkerId) -> None:
        """Wait for all output of a failed worker, for a short time."""
        await self._wait(worker, FAILURE_OUTPUT_TIMEOUT_S)

    async def collected(self, worker: WorkerId) -> None:
        """Wait for all output before the pod is deleted, for a longer time."""
        await self._wait(worker, FINAL_OUTPUT_TIMEOUT_S)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _wait(self, worker: WorkerId, timeout_s: float) -> None:
        if task := self._tasks.get(worker):
            await asyncio.wait([task], timeout=timeout_s)

    def _done(self, worker: WorkerId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(worker) is task:
            del self._tasks[worker]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("log collection failed", job=worker.job_id, exc_info=error)

    def _folder(self, worker: WorkerId) -> Path:
        if naming.slug(worker.job_id) != worker.job_id:
            raise UserError(f"job id {worker.job_id!r} is not a valid folder name")
        return self._root / worker.job_id / str(worker.attempt) / str(worker.worker)

    async def _run(self, pod_state: PodState, *, is_urgent: bool) -> None:
        """Fetch until a fetch after the end finds nothing new. A stream that ends proves
        nothing: a broken connection looks the same, and a node may report a container as ended
        before its last output is in the file."""
        n_failures, is_over = 0, False
        while True:
            if not is_over and self._is_over(pod_state.worker):
                # Earlier failures do not count against the last output.
                n_failures, is_over = 0, True
            try:
                has_more = await self._fetch_in_turn(pod_state, is_urgent=is_urgent or is_over)
                n_failures = 0
                if is_over and not has_more:
                    return
                await asyncio.sleep(LAST_RETRY_S if is_over else RETRY_S)
            except ApiError as error:
                n_failures += 1
                is_permanent = error.status in (FORBIDDEN, NOT_FOUND)
                if is_permanent or (is_over and n_failures >= MAX_FINAL_TRIES):
                    log.info("output not available", pod=pod_state.name, error=str(error))
                    return
                if error.status != NOT_YET:
                    self._pacer.refused(pod_state.node)
                await asyncio.sleep(retry_delay_s(n_failures))

    async def _fetch_in_turn(self, pod_state: PodState, *, is_urgent: bool) -> bool:
        """Whether there was new output."""
        self._waiting[pod_state.worker] = is_urgent
        slots = self._urgent_slots if is_urgent else self._slots
        await self._pacer.wait(pod_state.node, is_urgent=is_urgent)
        async with slots:
            del self._waiting[pod_state.worker]
            return await self._write(pod_state)

    async def _write(self, pod_state: PodState) -> bool:
        folder, limits = self._folder(pod_state.worker), self._limits
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = LogFile(
            str(self.path(pod_state.worker)), file_bytes=limits.file_bytes, n_files=limits.files
        )
        parser = LogStreamParser(file, ResumePoint.of(folder / "resume"))
        try:
            await self._read(pod_state, parser)
        finally:
            file.close()
        if parser.node_message:
            raise ApiError(
                NOT_YET, "Unreadable", shown(parser.node_message.decode(errors="replace"))
            )
        return parser.n_new_bytes > 0

    async def _read(self, pod_state: PodState, parser: LogStreamParser) -> None:
        chunks = self._client.pod_log(
            pod_state.name, container=pod_state.container, since=parser.since, follow=True
        )
        is_whole = False
        try:
            async for chunk in chunks:
                self._pacer.delivered(pod_state.node)
                parser.take(chunk)
            self._pacer.delivered(pod_state.node)
            is_whole = True
        finally:
            parser.finish(is_whole=is_whole)
