"""Moves queued jobs to another daemon after they have waited here for too long.

The steps of a move: hold the job here, submit it held at the target, cancel it here, release it at
the target. Each step is in the journal before the next one, so that a crash only delays the move.
At no time can both daemons start the job, so it never runs twice. A job that the target does not
accept is released here again, with the reason.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from rota.core.lifecycle.dependencies import is_ready
from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobCancelled, JobEvent, JobHeld, JobReleased
from rota.core.model.job import Ended, JobId
from rota.daemon.access.authorization import Caller
from rota.daemon.access.snapshot_access import SnapshotAccess
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.job_service import JobService
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.migration.planned_moves import PlannedMoves, is_movable
from rota.daemon.migration.requests import (
    GOES,
    SENT,
    WAITS,
    MigrationLimits,
    MigrationTarget,
    Move,
    check_move_quota,
    validate_move,
)
from rota.daemon.runtime.controller import Controller
from rota.errors import RotaError, UnavailableError, UserError, shown
from rota.tasks import ErrorIsolation
from rota.thread_pools import OTHER_SYSTEMS, STORE
from rota.wire.jobs import JobView
from rota.wire.moves import JobTransfer, MoveRequest, move_key, moved_reason

log = structlog.get_logger()

AT_ONCE = 4
"""How many moves run at a time."""
MIN_PAUSE_S = 0.2
RETRY_BOUNDS_S = (1.0, 60.0)
"""The first and the longest time between two attempts of a move."""
REASON = 200
"""The longest reason, in characters."""


class MoveTransport(Protocol):
    """The client of other daemons. All methods block; a `UserError` is a final refusal."""

    def hand_over(self, target: MigrationTarget, transfer: JobTransfer) -> str:
        """Submit the job, held, at the target; returns its id there. Idempotent."""
        ...

    def let_go(self, target: MigrationTarget, job_id: str) -> None: ...

    def take_back(self, target: MigrationTarget, job_id: str, *, reason: str) -> None: ...


@dataclass(slots=True)
class _MoveAttempt:
    """The attempts of one move since this daemon started."""

    since_s: float
    n_tries: int = 0
    not_before_s: float = -math.inf
    is_busy: bool = False
    has_held: bool = False


class TransferBuilder:
    """Collects all that another daemon needs to run a job. `origin` is the name of this daemon."""

    def __init__(
        self,
        directory: JobDirectory,
        submissions: SubmissionService,
        *,
        snapshots: SnapshotAccess,
        origin: str,
    ) -> None:
        self._directory = directory
        self._submissions = submissions
        self._snapshots = snapshots
        self._origin = origin

    def require_movable(self, caller: Caller, job_id: JobId) -> None:
        """Raises unless the caller may submit the job again on another daemon."""
        self._submissions.resubmit_request(caller, job_id)

    def build(self, move: Move) -> JobTransfer:
        owner = Caller(move.user)
        job = self._directory.find(owner, move.job_id)
        request = self._submissions.resubmit_request(owner, move.job_id)
        code = (
            self._snapshots.shipped_code(move.job_id, request.snapshot)
            if request.snapshot
            else None
        )
        origin = f"job {move.job_id} at {self._origin}"
        return JobTransfer(request, move_key(job.id, job.submitted_s), origin, code)


class Migrator:
    def __init__(
        self,
        controller: Controller,
        directory: JobDirectory,
        *,
        job_service: JobService,
        planned: PlannedMoves,
        transfers: TransferBuilder,
        transport: MoveTransport,
        limits: MigrationLimits,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._directory = directory
        self._job_service = job_service
        self._planned = planned
        self._transfers = transfers
        self._transport = transport
        self._limits = limits
        self._clock = clock
        self._attempts: dict[JobId, _MoveAttempt] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._isolation = ErrorIsolation("move check failed", raises=())
        self._wakeup = asyncio.Event()

    async def plan(self, caller: Caller, request: MoveRequest) -> list[JobView]:
        """Plan the move of jobs. Jobs that have started or ended are not changed."""
        target, wait_s = validate_move(caller, request, limits=self._limits)
        found = [await self._directory.find_to_change(caller, word) for word in request.jobs]
        for job in found:
            # Only the owner may move a job: the token belongs to the owner, and so will the job.
            await STORE.run(self._transfers.require_movable, caller, job.id)
        waiting = [job for job in found if is_movable(job)]
        check_move_quota(caller.user, len(waiting), known=self._planned.all())
        due_s = self._clock() + wait_s
        moves = [Move(job.id, caller.user, target, due_s) for job in waiting]
        await self._planned.put(*moves)
        self._wakeup.set()
        return [self._job_service.view(caller, job) for job in found]

    async def run(self) -> None:
        """Load the journal, then start due moves until cancelled."""
        await self._planned.load()
        while True:
            change = asyncio.ensure_future(self._controller.changed())
            news = asyncio.ensure_future(self._wakeup.wait())
            wait_s = self._start_due()
            await asyncio.wait({change, news}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            news.cancel()
            self._wakeup.clear()
            await asyncio.sleep(MIN_PAUSE_S)

    # -- scheduling of moves --------------------------------------------------------------------

    def _start_due(self) -> float:
        """Start the moves that are due; returns the time until the next one."""
        if self._controller.trouble:
            return RETRY_BOUNDS_S[0]
        now, next_s = self._clock(), math.inf
        for move in self._planned.all():
            attempt = self._attempts.setdefault(move.job_id, _MoveAttempt(since_s=now))
            if attempt.is_busy:
                continue
            with self._isolation.of(job=move.job_id):
                due_s = max(self._due_s(move), attempt.not_before_s)
                if due_s <= now:
                    attempt.is_busy = True
                    self._controller.tasks.spawn(self._try(move, attempt), job=move.job_id)
                else:
                    next_s = min(next_s, due_s)
        return max(MIN_PAUSE_S, min(next_s - now, RETRY_BOUNDS_S[1]))

    def _due_s(self, move: Move) -> float:
        job = self._directory.live(move.job_id)
        if move.step != WAITS or job is None or not is_movable(job):
            return -math.inf
        outcomes = self._controller.outcomes
        may_start = job.state is JobState.QUEUED and is_ready(job.spec, outcomes)
        return move.due_s if may_start else math.inf

    async def _try(self, move: Move, attempt: _MoveAttempt) -> None:
        try:
            async with self._slots:
                if attempt.n_tries == 0:
                    attempt.since_s = self._clock()
                attempt.n_tries += 1
                await self._go(move, attempt)
        except (UnavailableError, OSError) as error:
            log.warning("move failed, retrying", job=move.job_id, error=str(error))
        finally:
            pause_s = min(
                RETRY_BOUNDS_S[1], RETRY_BOUNDS_S[0] * 2.0 ** min(attempt.n_tries - 1, 10)
            )
            attempt.not_before_s = self._clock() + pause_s
            attempt.is_busy = False
            self._wakeup.set()

    # -- the steps ------------------------------------------------------------------------------

    async def _go(self, move: Move, attempt: _MoveAttempt) -> None:
        if move.step == WAITS:
            move = await self._put(replace(move, step=GOES))
        if move.step == GOES:
            if not await self._hold(move, attempt):
                return
            sent_as = await self._send(move, attempt)
            if not sent_as:
                return
            move = await self._put(replace(move, step=SENT, sent_as=sent_as))
        await self._finish(move)

    async def _hold(self, move: Move, attempt: _MoveAttempt) -> bool:
        """Hold the job here; returns whether the move continues. A job that has started, or that a
        user released during the move, is not moved."""
        job = self._directory.live(move.job_id)
        is_released = attempt.has_held and job is not None and job.state is not JobState.HELD
        if job is None or not is_movable(job) or is_released:
            await self._forget(move)
            return False
        if job.state is JobState.QUEUED:
            reason = f"being moved to {move.target.to}"
            await self._tell(JobHeld(job.id, move.user, reason), move)
        attempt.has_held = True
        return True

    async def _send(self, move: Move, attempt: _MoveAttempt) -> str:
        """Submit the job at the target; returns its id there, empty if the move was given up."""
        to = move.target.to
        try:
            transfer = await STORE.run(self._transfers.build, move)
            return await OTHER_SYSTEMS.run(self._transport.hand_over, move.target, transfer)
        except UnavailableError as error:
            is_early = self._clock() < attempt.since_s + self._limits.patience_s
            if is_early:
                raise
            await self._give_up(move, f"cannot reach {to}: {error.message}")
        except RotaError as error:
            await self._give_up(move, f"{to} refused the job: {error.message}")
        return ""

    async def _give_up(self, move: Move, why: str) -> None:
        job = self._directory.live(move.job_id)
        if job is not None and job.state is JobState.HELD:
            reason = shown(f"not moved: {why}", REASON)
            await self._tell(JobReleased(move.job_id, move.user, reason), move)
        await self._forget(move)

    async def _finish(self, move: Move) -> None:
        """The job is held at the target: cancel it here, then release it there. If a user released
        or cancelled it here meanwhile, cancel it at the target instead."""
        reason = moved_reason(move.target.to, move.sent_as)
        job = self._directory.live(move.job_id)
        if job is not None and job.state is JobState.HELD:
            await self._tell(JobCancelled(move.job_id, move.user, reason), move)
        target, there = move.target, move.sent_as
        try:
            if self._ended_by(reason, move.job_id):
                await OTHER_SYSTEMS.run(self._transport.let_go, target, there)
            else:
                back = "cancelled: the move was withdrawn"
                await OTHER_SYSTEMS.run(
                    lambda: self._transport.take_back(target, there, reason=back)
                )
        except UserError as error:
            what = "moved job cannot be released at the target"
            log.error(what, job=move.job_id, to=target.to, there=there, error=str(error))
        await self._forget(move)

    def _ended_by(self, reason: str, job_id: JobId) -> bool:
        if self._directory.live(job_id) is not None:
            return False
        job = self._directory.get(job_id)
        return job is not None and isinstance(job.phase, Ended) and job.phase.reason == reason

    # -- writes -----------------------------------------------------------------------------------

    async def _tell(self, event: JobEvent, move: Move) -> None:
        await self._controller.durable(self._controller.apply_event(event, actor=move.user))

    async def _put(self, move: Move) -> Move:
        await self._planned.put(move)
        return move

    async def _forget(self, move: Move) -> None:
        await self._planned.forget(move.job_id)
        self._attempts.pop(move.job_id, None)
