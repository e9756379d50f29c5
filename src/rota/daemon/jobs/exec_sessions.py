"""Commands next to the workers of running jobs, and connections to their ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from rota.config.limits import DEFAULT_LIMITS, UserLimits
from rota.core.model.job import Job, Running
from rota.daemon.access.authorization import Caller
from rota.daemon.errors import LimitError, NotFoundError
from rota.daemon.jobs.job_lookup import JobDirectory, describe_state
from rota.engines.interface import Engine, ExecSpec, Terminal, WorkerId, WorkerSession
from rota.errors import UserError
from rota.wire.exec import ExecRequest

log = structlog.get_logger()

COMMAND, CONNECTION = "command", "connection"
SETTINGS = {COMMAND: "max_exec_sessions", CONNECTION: "max_forwards"}
MAX_COMMAND_BYTES = 64 * 1024
MAX_CELLS = 10_000
MAX_TERMINAL_NAME = 64


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A worker that the user may reach."""

    user: str
    worker: WorkerId


class ExecSessions:
    def __init__(
        self,
        directory: JobDirectory,
        engine: Engine,
        *,
        limits: UserLimits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._directory = directory
        self._engine = engine
        self._n_open: Counter[tuple[str, str]] = Counter()

    def target(self, caller: Caller, word: str, *, worker: int | None) -> ExecTarget:
        """The worker of this number, by default the first. The job must run, and the caller must
        own the job."""
        job = self._directory.find_owned(caller, word)
        numbers = _running_workers(job)
        if worker is None:
            worker = numbers[0]
        if worker not in numbers:
            some = ", ".join(str(number) for number in numbers[:20])
            raise NotFoundError(f"job {job.id} has no worker {worker}", f"it has {some}")
        return ExecTarget(caller.user, WorkerId(job.id, job.attempt, worker))

    @asynccontextmanager
    async def command(
        self, target: ExecTarget, request: ExecRequest
    ) -> AsyncGenerator[WorkerSession]:
        spec = _exec_spec(request)

        async def begin() -> WorkerSession:
            return await self._engine.exec_command(target.worker, spec)

        counted = self._counted(target, COMMAND, most=self._limits.max_exec_sessions, begin=begin)
        async with counted as session:
            yield session

    @asynccontextmanager
    async def connection(self, target: ExecTarget, port: int) -> AsyncGenerator[WorkerSession]:
        async def begin() -> WorkerSession:
            return await self._engine.connect(target.worker, port)

        counted = self._counted(target, CONNECTION, most=self._limits.max_forwards, begin=begin)
        async with counted as session:
            yield session

    def n_open(self, user: str, kind: str) -> int:
        """The open commands or connections of a user."""
        return self._n_open[user, kind]

    @asynccontextmanager
    async def _counted(
        self,
        target: ExecTarget,
        kind: str,
        *,
        most: int,
        begin: Callable[[], Awaitable[WorkerSession]],
    ) -> AsyncGenerator[WorkerSession]:
        key = (target.user, kind)
        if self._n_open[key] >= most:
            what = f"{target.user} has {most} {kind}s open"
            raise LimitError(what, "close some of them", setting=SETTINGS[kind])
        self._n_open[key] += 1
        fields = {
            "job_id": target.worker.job_id,
            "worker": target.worker.worker,
            "user": target.user,
        }
        try:
            session = await begin()
            log.info(f"{kind}.opened", **fields)
            try:
                yield session
            finally:
                session.close()
                log.info(f"{kind}.closed", **fields)
        finally:
            self._n_open[key] -= 1
            if not self._n_open[key]:
                del self._n_open[key]


def _running_workers(job: Job) -> tuple[int, ...]:
    if not isinstance(job.phase, Running):
        raise UserError(
            f"job {job.id} does not run: {describe_state(job)}", "'rota show' shows the reason"
        )
    return tuple(number for number in job.phase.numbers if number not in job.phase.exits)


def _exec_spec(request: ExecRequest) -> ExecSpec:
    words = request.command
    if sum(len(word.encode(errors="replace")) for word in words) > MAX_COMMAND_BYTES:
        raise UserError(
            f"the command has more than {MAX_COMMAND_BYTES} bytes", "put it into a script"
        )
    if any("\0" in word for word in words) or words[:1] == [""]:
        raise UserError("the command has an empty first word, or a zero byte in one of its words")
    if not request.columns:
        return ExecSpec(tuple(words))
    kind = request.terminal
    is_plain = kind.isascii() and kind.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not is_plain or len(kind) > MAX_TERMINAL_NAME:
        kind = "dumb"
    return ExecSpec(tuple(words), Terminal(*bounded(request.rows, request.columns), kind))


def bounded(rows: int, columns: int) -> tuple[int, int]:
    """A terminal size within the limits."""
    return min(max(rows, 1), MAX_CELLS), min(max(columns, 1), MAX_CELLS)
