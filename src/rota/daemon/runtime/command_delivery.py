"""Delivers commands to the engine: those of one job in order, those of different jobs concurrently.

The preparation of a start may take minutes, because it unpacks shipped code. So the preparations of
each user are limited in number, and only starts of the same user and commands of the same job wait
for them. A newer command of the job does not wait for a preparation that is no longer due.

Every command gets an answer. If a command fails, `core.lifecycle.command_failures` decides what
that means for the job: an event for the kernel, or a retry after a back-off. This includes errors
that no code expects: they concern the job whose command it is, and no other job.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from rota.core.lifecycle.command_failures import FailureKind, answer_to_failure, is_due
from rota.core.model.commands import AskToStop, ChangeMembership, Command, StartWorkers
from rota.core.model.events import Bug, Event
from rota.core.model.job import Job, JobId
from rota.engines.interface import Engine, Program
from rota.errors import (
    RotaError,
    StoreError,
    UnavailableError,
    internal_error_message,
    os_error_message,
)
from rota.tasks import ErrorIsolation, Tasks

log = structlog.get_logger()

MAX_PREPARATIONS = 8
"""Concurrent preparations of one user."""
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0
"""Back-off before a failed command is retried: doubles from the first value to the last."""

ProgramSource = Callable[[JobId], Awaitable[Program]]
Starting = StartWorkers | ChangeMembership


class CommandListener(Protocol):
    """Passes commands on to the programs of a job."""

    def on_command(self, command: Command) -> None: ...


class DeliveryContext(Protocol):
    """The part of the controller that delivery uses."""

    def accepts(self, epoch: int) -> bool:
        """Whether commands of this epoch may be executed now."""
        ...

    def job(self, job_id: JobId) -> Job | None: ...

    def apply_event(self, event: Event) -> Future[None]: ...

    def fail_store(self, error: StoreError) -> None: ...


@dataclass(slots=True)
class _JobQueue:
    """The commands of one job that wait, each with its epoch."""

    commands: deque[tuple[Command, int]] = field(default_factory=deque[tuple[Command, int]])
    has_news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a command arrives."""


class CommandDelivery:
    def __init__(self, context: DeliveryContext, engine: Engine, *, tasks: Tasks) -> None:
        self._context, self._engine, self._tasks = context, engine, tasks
        self._programs: ProgramSource = _no_program
        self._listeners: Sequence[CommandListener] = ()
        self._queues: dict[JobId, _JobQueue] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        """The preparations of each user."""
        self._isolation = ErrorIsolation("command not passed on to a service", raises=())

    def open(self, programs: ProgramSource, *, listeners: Sequence[CommandListener]) -> None:
        """`programs` returns the program of a job that starts. The `listeners` get each command
        before the engine does."""
        self._programs, self._listeners = programs, listeners

    def put(self, command: Command, epoch: int) -> None:
        """Execute a command after the earlier commands of its job. The write that it depends on
        must be durable."""
        queue = self._queues.get(command.job_id)
        if queue is None:
            queue = self._queues[command.job_id] = _JobQueue()
            self._tasks.spawn_critical(self._run(command.job_id, queue))
        queue.commands.append((command, epoch))
        queue.has_news.set()

    async def _run(self, job_id: JobId, queue: _JobQueue) -> None:
        try:
            while queue.commands:
                command, epoch = queue.commands.popleft()
                if self._context.accepts(epoch):
                    await self._deliver_surely(command, epoch, queue=queue)
        finally:
            del self._queues[job_id]

    async def _deliver_surely(self, command: Command, epoch: int, *, queue: _JobQueue) -> None:
        """Deliver a command. After an error of the delivery itself, a start holds its job, and any
        other command is delivered again."""
        retry_s = FIRST_RETRY_S
        while self._context.accepts(epoch):
            try:
                await self._deliver(command, epoch, queue=queue)
            except Exception as error:
                log.exception("command not delivered", job=command.job_id, command=str(command))
                if isinstance(command, StartWorkers):
                    self._hold(command, error)
                    return
            else:
                return
            await asyncio.sleep(retry_s)
            retry_s = min(MAX_RETRY_S, 2 * retry_s)

    def _hold(self, command: StartWorkers, error: Exception) -> None:
        """Hold the job of this command, unless a recovery sends the command again."""
        with suppress(UnavailableError):
            self._context.apply_event(
                Bug(command.job_id, command.attempt, internal_error_message(error))
            )

    async def _deliver(self, command: Command, epoch: int, *, queue: _JobQueue) -> None:
        """Execute a command until it succeeds, is answered by an event, or is no longer due."""
        for listener in self._listeners:
            with self._isolation.of(job=command.job_id, service=type(listener).__name__):
                listener.on_command(command)
        if isinstance(command, AskToStop):
            return
        retry_s, last_reason = FIRST_RETRY_S, ""
        while self._is_due(command, epoch):
            failure = await self._try(command, epoch, queue=queue)
            if failure is None or not self._is_due(command, epoch):
                return
            reason = _reason(failure)
            if not self._answer(command, failure, is_known=reason == last_reason):
                return
            last_reason = reason
            await self._back_off(command, epoch, queue=queue, wait_s=retry_s)
            retry_s = min(MAX_RETRY_S, 2 * retry_s)

    def _is_due(self, command: Command, epoch: int) -> bool:
        context = self._context
        return context.accepts(epoch) and is_due(command, context.job(command.job_id))

    async def _try(self, command: Command, epoch: int, *, queue: _JobQueue) -> Exception | None:
        """Execute a command once. Returns why the command failed; None if it did not."""
        try:
            if isinstance(command, Starting):
                await self._start(command, epoch, queue=queue)
            else:
                await self._engine.apply(command, None)
        except StoreError as error:
            self._context.fail_store(error)
        except Exception as error:  # noqa: BLE001 - answered, and logged by `_answer`
            return error
        return None

    async def _start(self, command: Starting, epoch: int, *, queue: _JobQueue) -> None:
        preparing: asyncio.Future[Program] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(self._prepare(command.job_id, preparing), job=command.job_id)
        try:
            while not preparing.done() and self._is_due(command, epoch):
                await _first_of(preparing, queue.has_news)
            if self._is_due(command, epoch):
                await self._engine.apply(command, preparing.result())
        finally:
            _discard(preparing)

    async def _prepare(self, job_id: JobId, prepared: asyncio.Future[Program]) -> None:
        """Prepare a start, unless `prepared` is cancelled before a slot is free. A preparation that
        has begun keeps its slot until it ends: its thread cannot be interrupted."""
        job = self._context.job(job_id)
        user = "" if job is None else job.spec.user
        try:
            async with self._slots.setdefault(user, asyncio.Semaphore(MAX_PREPARATIONS)):
                if prepared.done():
                    return
                found = await self._programs(job_id)
        except Exception as error:  # noqa: BLE001 - raised again by `_start`
            if not prepared.done():
                prepared.set_exception(error)
        else:
            if not prepared.done():
                prepared.set_result(found)

    def _answer(self, command: Command, failure: Exception, *, is_known: bool) -> bool:
        """Tell the kernel about a failed command. Returns whether the command is retried. With
        `is_known`, the kernel knows this failure already and gets no event."""
        reason = _reason(failure)
        answer = answer_to_failure(
            command,
            self._context.job(command.job_id),
            reason=reason,
            kind=(kind := _kind(failure)),
        )
        if not is_known:
            cause = failure if kind is FailureKind.INTERNAL else None
            log.error("command failed", command=str(command), error=reason, exc_info=cause)
            self._context.apply_event(answer.event)
        return answer.is_retried

    async def _back_off(
        self, command: Command, epoch: int, *, queue: _JobQueue, wait_s: float
    ) -> None:
        """Wait before the next try. Return early if the command is no longer due, because newer
        commands of the job wait behind it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._is_due(command, epoch):
                    queue.has_news.clear()
                    await queue.has_news.wait()


def _discard(work: asyncio.Future[Program]) -> None:
    """Cancel the work. If it is done, mark its error as seen."""
    if not work.cancel() and not work.cancelled():
        work.exception()


async def _first_of(work: asyncio.Future[Program], news: asyncio.Event) -> None:
    """Wait until the work is done or a new command of the job arrives."""
    news.clear()
    waiting = asyncio.ensure_future(news.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _kind(failure: Exception) -> FailureKind:
    match failure:
        case OSError() | UnavailableError():
            return FailureKind.TEMPORARY
        case RotaError():
            return FailureKind.PERMANENT
        case _:
            return FailureKind.INTERNAL


def _reason(failure: Exception) -> str:
    match failure:
        case OSError():
            return os_error_message(failure)
        case RotaError():
            return str(failure)
        case _:
            return internal_error_message(failure)


async def _no_program(job_id: JobId) -> Program:
    raise RotaError(f"cannot start job {job_id}: the controller has not started")
