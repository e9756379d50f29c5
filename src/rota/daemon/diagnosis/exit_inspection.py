"""Adds a finding from the workers' logs to an exit event, before the kernel gets the event.

The workers of a gang fail together, and each exit is an event. All exits of an attempt that arrive
during an inspection share it, so that each log is read once: after the first event the job is
stopping, and the other exits need no finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

from rota.core.model.events import Event, WorkersExited, WorkersLost
from rota.core.model.job import Job, JobId, Stopping
from rota.daemon.diagnosis.diagnosis import TAIL_BYTES, Finding, diagnose, with_finding
from rota.engines.exit_reasons import OUT_OF_MEMORY
from rota.engines.interface import Engine, LogQuery, WorkerId
from rota.errors import RotaError
from rota.store.records import Exit
from rota.tasks import ErrorIsolation, Tasks
from rota.thread_pools import DIAGNOSIS

MAX_CONCURRENT_READS = 16
"""Logs that are in memory at once."""
AttemptKey = tuple[JobId, int]


class InspectionContext(Protocol):
    """The part of the controller that an inspection uses."""

    @property
    def trouble(self) -> str: ...

    def job(self, job_id: JobId) -> Job | None: ...

    def apply_event(self, event: Event) -> Future[None]: ...

    def apply_soon(self, event: Event) -> None: ...


class ExitInspector:
    def __init__(self, context: InspectionContext, engine: Engine, *, tasks: Tasks) -> None:
        self._context, self._engine, self._tasks = context, engine, tasks
        self._waiting: dict[AttemptKey, list[WorkersExited | WorkersLost]] = {}
        """The exits and losses of each attempt that is being inspected, in order of arrival."""
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_READS)
        self._isolation = ErrorIsolation("exit recorded without log inspection", raises=())

    def inspect(self, event: WorkersExited | WorkersLost) -> None:
        """Tell the kernel about an exit, with a finding if the exit needs one. A loss waits for the
        exits before it: the first failure decides what becomes of the job."""
        key = event.job_id, event.attempt
        if key in self._waiting:
            self._waiting[key].append(event)
        elif isinstance(event, WorkersExited) and self._needs_inspection(event):
            self._waiting[key] = [event]
            self._tasks.spawn_critical(self._inspect_attempt(key))
        else:
            self._context.apply_soon(event)

    def _needs_inspection(self, event: WorkersExited) -> bool:
        """Whether a worker of the current attempt failed without a stop request, and the engine
        does not know the cause. A memory limit is the cause, whatever the log contains."""
        job = self._context.job(event.job_id)
        if job is None or job.attempt != event.attempt or isinstance(job.phase, Stopping):
            return False
        return any(event.codes.values()) and not event.reason.startswith(OUT_OF_MEMORY)

    async def _inspect_attempt(self, key: AttemptKey) -> None:
        exits, findings = self._waiting[key], dict[int, Finding | None]()
        try:
            while exits and not self._context.trouble:
                found = exits[0]
                if isinstance(found, WorkersExited) and self._needs_inspection(found):
                    with self._isolation.of(job=found.job_id):
                        found = await self._with_finding(found, findings)
                if not self._context.trouble:
                    self._context.apply_event(found)
                del exits[0]
        finally:
            del self._waiting[key]

    async def _with_finding(
        self, event: WorkersExited, findings: dict[int, Finding | None]
    ) -> WorkersExited:
        """The event with a finding. The logs of all workers are read: the first worker to exit may
        be the victim of another one's failure. `findings` has those of earlier exits; the workers
        of this event are read again, because their output may have been incomplete."""
        job = self._context.job(event.job_id)
        numbers = job.numbers if job is not None else tuple(event.codes)
        unread = [each for each in numbers if each in event.codes or each not in findings]
        findings |= await self._read(event, unread)
        return with_finding(event, [findings[each] for each in numbers])

    async def _read(
        self, event: WorkersExited, numbers: Iterable[int]
    ) -> Mapping[int, Finding | None]:
        worst = max(event.codes.values())
        codes = {each: event.codes.get(each, worst) for each in numbers}
        workers = [WorkerId(event.job_id, event.attempt, each) for each in codes]
        found = await asyncio.gather(*(self._finding(each, codes[each.worker]) for each in workers))
        return dict(zip(codes, found, strict=True))

    async def _finding(self, worker: WorkerId, code: int) -> Finding | None:
        async with self._slots:
            tail = await self._tail(worker)
            return await DIAGNOSIS.run(lambda: diagnose(tail, code)) if tail else None

    async def _tail(self, worker: WorkerId) -> str:
        query = LogQuery(tail_bytes=TAIL_BYTES)
        try:
            found = [each.output async for each in self._engine.logs(worker, query)]
        except (RotaError, OSError):
            return ""
        return b"".join(found).decode(errors="replace")


def exits_of(event: WorkersExited, now: float) -> tuple[Exit, ...]:
    return tuple(
        Exit(event.job_id, event.attempt, worker, code, now) for worker, code in event.codes.items()
    )
