"""Jobs that go to another daemon when they have waited here for too long.

A move is held here first, handed over on hold, ended here, and only then let go there. Each step is
on the disk before the next one, so that a crash is a pause; and as no two places ever have it ready
to run, it never runs twice. What cannot be handed over is released here again, with the reason.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from rota.core.events import JobCancelled, JobEvent, JobHeld, JobReleased
from rota.core.model import Ended, Job, JobId
from rota.core.states import State
from rota.daemon.desk import Desk
from rota.daemon.move_files import GOES, SENT, WAITS, Move, MoveKeeper, Target
from rota.daemon.move_plans import Limits, check_room, planned
from rota.daemon.people import Caller
from rota.daemon.snapshots import shipper_of
from rota.daemon.threads import in_thread
from rota.errors import RotaError, UnavailableError, UserError, shown
from rota.tasks import Bugs
from rota.wire.jobs import JobView
from rota.wire.moves import Code, MoveRequest, Parcel, key_of, moved

log = structlog.get_logger()

AT_ONCE = 4
BREATH_S = 0.2
AGAIN_S = (1.0, 60.0)
"""Between two tries to reach another daemon: at first, and at most."""
REASON = 200


class Carrier(Protocol):
    """Speaks to other daemons. All of it blocks; `UserError` is a refusal, for good."""

    def hand_over(self, target: Target, parcel: Parcel) -> str:
        """The id of the job there, which is on hold. The same parcel again is the same job."""
        ...

    def let_go(self, target: Target, job_id: str) -> None: ...

    def take_back(self, target: Target, job_id: str, *, reason: str) -> None: ...


@dataclass(slots=True)
class _Trying:
    """How it goes with a move that is under way, since this daemon started."""

    since_s: float
    n_tries: int = 0
    not_before_s: float = -math.inf
    is_busy: bool = False
    has_held: bool = False


class Moves:
    def __init__(
        self, desk: Desk, keeper: MoveKeeper, *, carrier: Carrier, limits: Limits, origin: str
    ) -> None:
        """`origin` is what we are called elsewhere."""
        self._desk = desk
        self._keeper = keeper
        self._carrier = carrier
        self._limits = limits
        self._origin = origin
        self._moves: dict[JobId, Move] = {}
        self._trying: dict[JobId, _Trying] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._bugs = Bugs("a move could not be looked at")
        self._planned = asyncio.Event()

    async def plan(self, caller: Caller, request: MoveRequest) -> list[JobView]:
        """Jobs that have started, or are over, stay as they are."""
        target, wait_s = planned(caller, request, limits=self._limits)
        found = [self._desk.reach(caller, word) for word in request.jobs]
        for job in found:
            # The token is its owner's, and so will the job be.
            self._desk.again(caller, job.id)
        waiting = [job for job in found if _waits(job)]
        check_room(caller.user, len(waiting), known=self._moves.values())
        due_s = self._desk.clock() + wait_s
        moves = [Move(job.id, caller.user, target, due_s) for job in waiting]
        await self._keeper.save(*moves)
        self._moves |= {move.job_id: move for move in moves}
        self._planned.set()
        return [self._desk.view(caller, job) for job in found]

    def word(self, job: Job) -> str:
        """Where a job will go, for whoever looks at it."""
        move = self._moves.get(job.id)
        if move is None or not _waits(job):
            return ""
        if move.step != WAITS:
            return f"is on its way to {move.target.to}"
        left_s = max(0.0, move.due_s - self._desk.clock())
        left = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        return f"goes to {move.target.to} in {left} unless it starts before"

    async def run(self) -> None:
        """For as long as the daemon runs."""
        for move in await self._known():
            self._moves.setdefault(move.job_id, move)
        while True:
            change = asyncio.ensure_future(self._desk.shell.changed())
            news = asyncio.ensure_future(self._planned.wait())
            wait_s = self._look()
            await asyncio.wait({change, news}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            news.cancel()
            self._planned.clear()
            await asyncio.sleep(BREATH_S)

    async def _known(self) -> list[Move]:
        while True:
            try:
                return await self._keeper.load()
            except (UnavailableError, OSError) as error:
                log.warning("planned moves cannot be read yet", error=str(error))
            await asyncio.sleep(AGAIN_S[1])

    # -- whose turn it is -----------------------------------------------------------------------

    def _look(self) -> float:
        """Begin what is due; how long until there is more to do."""
        if self._desk.shell.trouble:
            return AGAIN_S[0]
        now, next_s = self._desk.clock(), math.inf
        for move in list(self._moves.values()):
            trying = self._trying.setdefault(move.job_id, _Trying(since_s=now))
            if trying.is_busy:
                continue
            with self._bugs.of(job=move.job_id):
                due_s = max(self._due_s(move), trying.not_before_s)
                if due_s <= now:
                    trying.is_busy = True
                    self._desk.shell.tasks.spawn(self._try(move, trying), job=move.job_id)
                else:
                    next_s = min(next_s, due_s)
        return max(BREATH_S, min(next_s - now, AGAIN_S[1]))

    def _due_s(self, move: Move) -> float:
        job = self._desk.shell.kernel.job(move.job_id)
        if move.step != WAITS or job is None or not _waits(job):
            return -math.inf
        outcomes = self._desk.shell.kernel.outcomes
        is_ready = all(outcomes.get(each) is State.SUCCEEDED for each in job.spec.after)
        return move.due_s if job.state is State.QUEUED and is_ready else math.inf

    async def _try(self, move: Move, trying: _Trying) -> None:
        try:
            async with self._room:
                if trying.n_tries == 0:
                    trying.since_s = self._desk.clock()
                trying.n_tries += 1
                await self._go(move, trying)
        except (UnavailableError, OSError) as error:
            log.warning("a move does not get on", job=move.job_id, error=str(error))
        finally:
            pause_s = min(AGAIN_S[1], AGAIN_S[0] * 2.0 ** min(trying.n_tries - 1, 10))
            trying.not_before_s = self._desk.clock() + pause_s
            trying.is_busy = False
            self._planned.set()

    # -- the steps ------------------------------------------------------------------------------

    async def _go(self, move: Move, trying: _Trying) -> None:
        if move.step == WAITS:
            move = await self._put(replace(move, step=GOES))
        if move.step == GOES:
            if not await self._hold(move, trying):
                return
            sent_as = await self._send(move, trying)
            if not sent_as:
                return
            move = await self._put(replace(move, step=SENT, sent_as=sent_as))
        await self._finish(move)

    async def _hold(self, move: Move, trying: _Trying) -> bool:
        """Whether it waits for us alone now. One that has started, or that somebody released while
        it was on its way, is left alone."""
        job = self._desk.shell.kernel.job(move.job_id)
        is_released = trying.has_held and job is not None and job.state is not State.HELD
        if job is None or not _waits(job) or is_released:
            await self._forget(move)
            return False
        if job.state is State.QUEUED:
            reason = f"on its way to {move.target.to}"
            await self._tell(JobHeld(job.id, move.user, reason), move)
        trying.has_held = True
        return True

    async def _send(self, move: Move, trying: _Trying) -> str:
        """The id that it has there; empty if it stays here."""
        to = move.target.to
        try:
            parcel = await asyncio.to_thread(self._parcel, move)
            return await in_thread(lambda: self._carrier.hand_over(move.target, parcel))
        except UnavailableError as error:
            is_early = self._desk.clock() < trying.since_s + self._limits.patience_s
            if is_early:
                raise
            await self._stay(move, f"{to} cannot be reached: {error.message}")
        except RotaError as error:
            await self._stay(move, f"{to} did not take it: {error.message}")
        return ""

    async def _stay(self, move: Move, why: str) -> None:
        job = self._desk.shell.kernel.job(move.job_id)
        if job is not None and job.state is State.HELD:
            reason = shown(f"stays here: {why}", REASON)
            await self._tell(JobReleased(move.job_id, move.user, reason), move)
        await self._forget(move)

    async def _finish(self, move: Move) -> None:
        """It is there, on hold. Whoever released or cancelled it here meanwhile has the last
        word."""
        reason = moved(move.target.to, move.sent_as)
        job = self._desk.shell.kernel.job(move.job_id)
        if job is not None and job.state is State.HELD:
            await self._tell(JobCancelled(move.job_id, move.user, reason), move)
        target, there = move.target, move.sent_as
        try:
            if self._ended_by(reason, move.job_id):
                await in_thread(lambda: self._carrier.let_go(target, there))
            else:
                back = "taken back: it was not to be moved any more"
                await in_thread(lambda: self._carrier.take_back(target, there, reason=back))
        except UserError as error:
            what = "a job was moved and cannot be let go there"
            log.error(what, job=move.job_id, to=target.to, there=there, error=str(error))
        await self._forget(move)

    def _ended_by(self, reason: str, job_id: JobId) -> bool:
        if self._desk.shell.kernel.job(job_id) is not None:
            return False
        job = self._desk.store.job(job_id)
        return job is not None and isinstance(job.phase, Ended) and job.phase.reason == reason

    # -- what they are made of ------------------------------------------------------------------

    def _parcel(self, move: Move) -> Parcel:
        owner = Caller(move.user)
        job = self._desk.find(move.job_id, owner)
        request = self._desk.again(owner, move.job_id)
        code: Code | None = None
        if request.snapshot:
            submission = self._desk.store.submission(move.job_id)
            if submission is None:
                raise UserError(f"nobody knows what job {move.job_id} runs")
            shelf, snapshots = shipper_of(submission), self._desk.snapshots
            manifest = snapshots.manifest(request.snapshot, owner=shelf)
            code = Code(manifest, lambda sha256: snapshots.open(sha256, owner=shelf))
        origin = f"job {move.job_id} at {self._origin}"
        return Parcel(request, key_of(job.id, job.submitted_s), origin, code)

    async def _tell(self, event: JobEvent, move: Move) -> None:
        shell = self._desk.shell
        await shell.durable(shell.tell(event, actor=move.user))

    async def _put(self, move: Move) -> Move:
        await self._keeper.save(move)
        self._moves[move.job_id] = move
        return move

    async def _forget(self, move: Move) -> None:
        await self._keeper.forget(move.job_id)
        self._moves.pop(move.job_id, None)
        self._trying.pop(move.job_id, None)


def _waits(job: Job) -> bool:
    """For its first start, which a moved job would have there."""
    return job.attempt == 0 and job.state in (State.QUEUED, State.HELD)
