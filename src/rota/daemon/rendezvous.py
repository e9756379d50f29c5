"""Where the agents of torchrun meet: a barrier for each generation of a job, and a store of keys
and values for each turn. Who comes is the scheduler's word, so that nobody waits for anybody else.

All of it is in memory. After a restart the agents that run say where they are, those at the barrier
arrive again, and what they had put into the store they put there once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import structlog

from rota.core.model import Job, JobId
from rota.daemon.fields import RefusedError
from rota.daemon.keyvalues import CHANGES, check
from rota.daemon.meeting import Meeting, Offer, Turn
from rota.daemon.meeting_room import Restart, Room
from rota.daemon.membership import Membership, Roll, roll_of
from rota.daemon.people import Caller, ForbiddenError, Reach
from rota.daemon.shell import Shell
from rota.tasks import Bugs
from rota_trainer.meetings import (
    ABSENT,
    BROKEN,
    FAILED,
    FINISHED,
    MOVED,
    RUNNING,
    WAITING,
    Arrival,
    Exchange,
    Found,
    News,
    Seat,
    Watching,
)

log = structlog.get_logger()

MOST_NUMBER = 2**31
LONGEST_HOST = 255
LAST_PORT = 65535
LONGEST_START_S = 86400.0


class Rendezvous:
    def __init__(self, shell: Shell, membership: Membership, *, clock: Callable[[], float]) -> None:
        self._shell = shell
        self._membership = membership
        self._clock = clock
        self._rooms: dict[JobId, Room] = {}
        self._is_hushed = False
        self._bugs = Bugs("those who wait for others could not be told")

    # -- the barrier ----------------------------------------------------------------------------

    async def arrive(self, caller: Caller, arrival: Arrival) -> Seat:
        """The caller's seat, once all are there."""
        job = self._job(caller)
        last = _checked(arrival)
        _check_offer(arrival)
        room, offer = self._room(job), Offer(arrival.host, arrival.port)

        def look() -> Seat | None:
            meeting = room.meeting
            if not self._is_forming(job):
                return None
            had_arrived, had_met = arrival.worker in meeting.arrived, meeting.met
            seat = meeting.arrive(arrival.worker, last, offer=offer)
            if meeting.met is not had_met:
                room.has_met(self._clock())
                self._commit(job, room)
            elif (arrival.worker in meeting.arrived) != had_arrived:
                room.announce()
            return seat

        return await room.hold(look, arrival.wait_s) or Seat(WAITING)

    async def watch(self, caller: Caller, watching: Watching) -> News:
        """That the caller has to come again, as soon as it has."""
        job = self._job(caller)
        at = _checked(watching)
        if watching.state not in (RUNNING, FAILED, FINISHED):
            raise RefusedError("state", "it is 'running', 'failed' or 'finished'")
        room = self._room(job)
        if watching.worker in job.numbers:
            self._note(job, room, watching=watching)

        def look() -> News | None:
            state, meeting = watching.state, room.meeting
            if not self._is_forming(job) or not meeting.calls(watching.worker, at, state=state):
                return None
            room.has_called(self._clock())
            return News(is_called=True, generation=meeting.roll.generation)

        wait_s = 0.0 if watching.state == FINISHED else watching.wait_s
        return await room.hold(look, wait_s) or News()

    def _note(self, job: Job, room: Room, *, watching: Watching) -> None:
        at = Turn(watching.generation, watching.turn)
        is_known = room.meeting.running.get(watching.worker) == at
        if room.meeting.note(watching.worker, at, state=watching.state):
            self._commit(job, room)
        elif not is_known:
            room.announce()
        met, start_s = room.meeting.met, watching.start_s
        if start_s is None or met is None or met.turn != at:
            return
        if not 0 <= start_s <= LONGEST_START_S:
            raise RefusedError("start_s", f"it is not within 0 and {LONGEST_START_S:g}")
        if room.has_started(watching.worker, start_s) and room.restart is not None:
            log.info("agents run", job=job.id, **_rounded(room.restart))

    def _commit(self, job: Job, room: Room) -> None:
        generation = room.meeting.roll.generation
        self._membership.committed(
            job.id, job.attempt, generation=generation, pause_s=room.pause_s()
        )
        room.announce()

    def restart(self, job_id: JobId) -> Restart | None:
        """How long the newest change of members took, if that is known."""
        room = self._rooms.get(job_id)
        return None if room is None else room.restart

    # -- the store ------------------------------------------------------------------------------

    async def exchange(self, caller: Caller, asked: Exchange) -> Found:
        """What the turn's store answers; one that wants a key waits for it."""
        job = self._job(caller)
        at = _checked(asked)
        check(asked)
        if asked.worker not in job.numbers:
            return Found(BROKEN)
        room = self._room(job)
        store = room.store(at)
        if store is None:
            return Found(BROKEN)
        if asked.store not in ("", store.name):
            return Found(MOVED, store.name)

        def look() -> Found | None:
            if room.store(at) is not store:
                return Found(BROKEN, store.name)
            found = store.do(asked)
            if found.state == ABSENT:
                return Found(BROKEN, store.name) if room.meeting.is_broken(at) else None
            return found

        found = await room.hold(look, asked.wait_s) or Found(ABSENT, store.name)
        if asked.deed in CHANGES:
            room.announce()
        return found

    # -- who ------------------------------------------------------------------------------------

    def _job(self, caller: Caller) -> Job:
        job = None if caller.job_id is None else self._shell.kernel.job(caller.job_id)
        if caller.reach is not Reach.JOB or job is None:
            raise ForbiddenError(
                "only the agents of a job meet here, with the token of its attempt",
                "use torchrun --rdzv-backend rota in the job's command",
            )
        return job

    def _room(self, job: Job) -> Room:
        room = self._rooms.get(job.id)
        if room is not None and room.meeting.attempt != job.attempt:
            self._close(job.id)
            room = None
        roll = roll_of(job) or Roll(job.generation, job.numbers, job.numbers, {})
        if room is None:
            room = self._rooms[job.id] = Room(Meeting(job.attempt, roll))
            room.is_over = self._is_hushed
        elif room.meeting.update(roll):
            room.announce()
        return room

    def _is_forming(self, job: Job) -> bool:
        now = self._shell.kernel.job(job.id)
        return now is not None and now.attempt == job.attempt and roll_of(now) is not None

    # -- time -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled: tells those who wait what the scheduler wants now."""
        while True:
            await self._shell.changed()
            for job_id, room in list(self._rooms.items()):
                with self._bugs.of(job=job_id):
                    self._look(job_id, room)

    def _look(self, job_id: JobId, room: Room) -> None:
        job = self._shell.kernel.job(job_id)
        if job is None or not job.is_active or job.attempt != room.meeting.attempt:
            self._close(job_id)
            return
        roll = roll_of(job)
        if roll is not None and roll != room.meeting.roll:
            room.meeting.update(roll)
            room.announce()

    def _close(self, job_id: JobId) -> None:
        room = self._rooms.pop(job_id)
        room.is_over = True
        room.announce()

    def hush(self) -> None:
        """The daemon ends: nobody waits for anything any more."""
        self._is_hushed = True
        for room in self._rooms.values():
            room.is_over = True
            room.announce()


def _checked(message: Arrival | Watching | Exchange) -> Turn:
    """Where the sender is or was, within bounds."""
    bounds = {"worker": (message.worker, 0), "generation": (message.generation, -1)}
    for name, (value, least) in {**bounds, "turn": (message.turn, 0)}.items():
        if not least <= value <= MOST_NUMBER:
            raise RefusedError(name, f"it is not within {least} and {MOST_NUMBER}")
    if not (math.isfinite(message.wait_s) and message.wait_s >= 0):
        raise RefusedError("wait_s", "it is no number of seconds")
    return Turn(message.generation, message.turn)


def _check_offer(arrival: Arrival) -> None:
    is_host = 0 < len(arrival.host) <= LONGEST_HOST and arrival.host.isprintable()
    if not is_host or " " in arrival.host:
        raise RefusedError("host", "it is no name or address of a machine")
    if not 0 < arrival.port <= LAST_PORT:
        raise RefusedError("port", f"it is not within 1 and {LAST_PORT}")


def _rounded(restart: Restart) -> dict[str, float]:
    return {
        "generation": restart.generation,
        "workers": restart.workers,
        "gather_s": round(restart.gather_s, 3),
        "start_s": round(restart.start_s, 3),
    }
