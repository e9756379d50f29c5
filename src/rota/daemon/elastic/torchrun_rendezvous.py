"""The rendezvous of torchrun agents: a barrier per generation and a key-value store per round.

The scheduler decides the members, so that no agent waits longer than necessary. Everything is in
memory. After a restart of the daemon, running agents report their round again, waiting agents
arrive again, and all agents write their keys again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import structlog

from rota.core.model.job import Job, JobId
from rota.daemon.access.authorization import Caller, require_job_token
from rota.daemon.elastic.barrier import MasterAddress, RendezvousBarrier, RendezvousRound
from rota.daemon.elastic.barrier_session import BarrierSession, RestartTiming
from rota.daemon.elastic.kv_store import CHANGES, validate_request
from rota.daemon.elastic.membership import GenerationRoster, MembershipService, roster_of
from rota.daemon.errors import RefusedError
from rota.daemon.runtime.controller import Controller
from rota.tasks import ErrorIsolation
from rota_trainer.torchrun.messages import (
    ABSENT,
    BROKEN,
    FAILED,
    FINISHED,
    MOVED,
    RUNNING,
    WAITING,
    ArriveRequest,
    RendezvousAssignment,
    StoreRequest,
    StoreResponse,
    WatchRequest,
    WatchResponse,
)

log = structlog.get_logger()

MOST_NUMBER = 2**31
LONGEST_HOST = 255
LAST_PORT = 65535
LONGEST_START_S = 86400.0


class TorchrunRendezvous:
    def __init__(
        self, controller: Controller, membership: MembershipService, *, clock: Callable[[], float]
    ) -> None:
        self._controller = controller
        self._membership = membership
        self._clock = clock
        self._sessions: dict[JobId, BarrierSession] = {}
        self._is_shutting_down = False
        self._isolation = ErrorIsolation("rendezvous update failed", raises=())

    # -- the barrier ----------------------------------------------------------------------------

    async def arrive(self, caller: Caller, arrival: ArriveRequest) -> RendezvousAssignment:
        """Wait at the barrier; returns the agent's assignment when all members have arrived."""
        job = self._job(caller)
        last = _checked(arrival)
        _check_address(arrival)
        session, master = self._session(job), MasterAddress(arrival.host, arrival.port)

        def look() -> RendezvousAssignment | None:
            barrier = session.barrier
            if not self._is_forming(job):
                return None
            had_arrived, had_met = arrival.worker in barrier.arrived, barrier.result
            assignment = barrier.arrive(arrival.worker, last, master=master)
            if barrier.result is not had_met:
                session.record_meeting(self._clock())
                self._commit(job, session)
            elif (arrival.worker in barrier.arrived) != had_arrived:
                session.announce()
            return assignment

        return await session.hold(look, arrival.wait_s) or RendezvousAssignment(WAITING)

    async def watch(self, caller: Caller, watching: WatchRequest) -> WatchResponse:
        """Wait until the agent must join again, at most for its `wait_s`."""
        job = self._job(caller)
        at = _checked(watching)
        if watching.state not in (RUNNING, FAILED, FINISHED):
            raise RefusedError("state", "must be 'running', 'failed' or 'finished'")
        session = self._session(job)
        if watching.worker in job.numbers:
            self._note(job, session, watching=watching)

        def look() -> WatchResponse | None:
            state, barrier = watching.state, session.barrier
            if not self._is_forming(job) or not barrier.must_rejoin(
                watching.worker, at, state=state
            ):
                return None
            session.record_call(self._clock())
            return WatchResponse(is_called=True, generation=barrier.roster.generation)

        wait_s = 0.0 if watching.state == FINISHED else watching.wait_s
        return await session.hold(look, wait_s) or WatchResponse()

    def _note(self, job: Job, session: BarrierSession, *, watching: WatchRequest) -> None:
        at = RendezvousRound(watching.generation, watching.turn)
        is_known = session.barrier.running.get(watching.worker) == at
        if session.barrier.note(watching.worker, at, state=watching.state):
            self._commit(job, session)
        elif not is_known:
            session.announce()
        met, start_s = session.barrier.result, watching.start_s
        if start_s is None or met is None or met.round != at:
            return
        if not 0 <= start_s <= LONGEST_START_S:
            raise RefusedError("start_s", f"must be between 0 and {LONGEST_START_S:g}")
        if session.record_start(watching.worker, start_s) and session.restart is not None:
            log.info("agents run", job=job.id, **_rounded(session.restart))

    def _commit(self, job: Job, session: BarrierSession) -> None:
        generation = session.barrier.roster.generation
        self._membership.committed(
            job.id, job.attempt, generation=generation, pause_s=session.pause_s()
        )
        session.announce()

    def restart(self, job_id: JobId) -> RestartTiming | None:
        """The duration of the newest change of members; None if unknown."""
        session = self._sessions.get(job_id)
        return None if session is None else session.restart

    # -- the store ------------------------------------------------------------------------------

    async def exchange(self, caller: Caller, request: StoreRequest) -> StoreResponse:
        """Handle a store request; one that needs a missing key waits for it."""
        job = self._job(caller)
        at = _checked(request)
        validate_request(request)
        if request.worker not in job.numbers:
            return StoreResponse(BROKEN)
        session = self._session(job)
        store = session.store(at)
        if store is None:
            return StoreResponse(BROKEN)
        if request.store not in ("", store.name):
            return StoreResponse(MOVED, store.name)

        def look() -> StoreResponse | None:
            if session.store(at) is not store:
                return StoreResponse(BROKEN, store.name)
            found = store.handle(request)
            if found.state == ABSENT:
                return StoreResponse(BROKEN, store.name) if session.barrier.is_broken(at) else None
            return found

        found = await session.hold(look, request.wait_s) or StoreResponse(ABSENT, store.name)
        if request.deed in CHANGES:
            session.announce()
        return found

    # -- jobs and sessions ----------------------------------------------------------------------

    def _job(self, caller: Caller) -> Job:
        return require_job_token(
            caller,
            self._controller.job,
            action="use its rendezvous",
            hint="use torchrun --rdzv-backend rota in the job's command",
        )

    def _session(self, job: Job) -> BarrierSession:
        session = self._sessions.get(job.id)
        if session is not None and session.barrier.attempt != job.attempt:
            self._close(job.id)
            session = None
        roster = roster_of(job) or GenerationRoster(job.generation, job.numbers, job.numbers, {})
        if session is None:
            session = self._sessions[job.id] = BarrierSession(
                RendezvousBarrier(job.attempt, roster)
            )
            session.is_over = self._is_shutting_down
        elif session.barrier.update(roster):
            session.announce()
        return session

    def _is_forming(self, job: Job) -> bool:
        now = self._controller.job(job.id)
        return now is not None and now.attempt == job.attempt and roster_of(now) is not None

    # -- background task ------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: pass changes of members to the barriers and wake the waiting agents."""
        while True:
            await self._controller.changed()
            for job_id, session in list(self._sessions.items()):
                with self._isolation.of(job=job_id):
                    self._update(job_id, session)

    def _update(self, job_id: JobId, session: BarrierSession) -> None:
        job = self._controller.job(job_id)
        if job is None or not job.is_active or job.attempt != session.barrier.attempt:
            self._close(job_id)
            return
        roster = roster_of(job)
        if roster is not None and roster != session.barrier.roster:
            session.barrier.update(roster)
            session.announce()

    def _close(self, job_id: JobId) -> None:
        session = self._sessions.pop(job_id)
        session.is_over = True
        session.announce()

    def release_waiters(self) -> None:
        """Answer all held requests; the daemon is shutting down."""
        self._is_shutting_down = True
        for session in self._sessions.values():
            session.is_over = True
            session.announce()


def _checked(message: ArriveRequest | WatchRequest | StoreRequest) -> RendezvousRound:
    """The round of the sender. Raises RefusedError for numbers out of range."""
    bounds = {"worker": (message.worker, 0), "generation": (message.generation, -1)}
    for name, (value, least) in {**bounds, "turn": (message.turn, 0)}.items():
        if not least <= value <= MOST_NUMBER:
            raise RefusedError(name, f"must be between {least} and {MOST_NUMBER}")
    if not (math.isfinite(message.wait_s) and message.wait_s >= 0):
        raise RefusedError("wait_s", "must be a number of seconds")
    return RendezvousRound(message.generation, message.turn)


def _check_address(arrival: ArriveRequest) -> None:
    is_host = 0 < len(arrival.host) <= LONGEST_HOST and arrival.host.isprintable()
    if not is_host or " " in arrival.host:
        raise RefusedError("host", "not a host name or address")
    if not 0 < arrival.port <= LAST_PORT:
        raise RefusedError("port", f"must be between 1 and {LAST_PORT}")


def _rounded(restart: RestartTiming) -> dict[str, float]:
    return {
        "generation": restart.generation,
        "workers": restart.workers,
        "gather_s": round(restart.gather_s, 3),
        "start_s": round(restart.start_s, 3),
    }
