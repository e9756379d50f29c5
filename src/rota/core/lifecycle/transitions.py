"""How a job enters its next state: with what data, and with its time accounts closed.

Pure functions of one job. The roster calls `enter` with the state that the table gave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rota.core.model import (
    Allocation,
    Ended,
    Held,
    HoldsGpus,
    Job,
    Mode,
    Purpose,
    Queued,
    Running,
    Starting,
    Stopping,
)
from rota.core.progress import rolled_back, service_at
from rota.core.states import State

BACKOFF_MAX_S = 600.0
DOUBLINGS_MAX = 30
LOST_SOON_S = 60.0
"""Workers that are lost before this, without progress, came to nothing."""
ASKING = (Purpose.RESIZE, Purpose.PREEMPT, Purpose.HOLD)
"""Purposes that can wait until a program that hears us has saved its state."""
BEREFT = (Purpose.LOST, Purpose.RETRY)
"""Purposes of a stop after which too few workers are left."""
IN_VAIN = (State.HELD, State.QUEUED, State.FAILED, State.CANCELLED)
"""States in which an attempt ends without success."""
FINALITY = tuple(Purpose)
"""A job that is stopping for two purposes follows the more final one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """With what a job enters its next state."""

    now: float
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()
    backoff_s: float = 0.0
    gone: frozenset[int] = frozenset()


def enter(job: Job, state: State, *, entry: Entry) -> Job:
    """The job in its next state, its time accounts closed for the last one."""
    job = replace(job, service=service_at(job, entry.now))
    if job.is_active and state in IN_VAIN:
        job = rolled_back(job)
    now = entry.now
    match state:
        case State.HELD:
            return replace(job, phase=Held(now))
        case State.QUEUED:
            return _queued(job, entry)
        case State.STARTING:
            return _starting(job, entry)
        case State.RUNNING:
            return _running(job, entry)
        case State.STOPPING:
            return _stopping(job, entry)
        case State.SUCCEEDED | State.FAILED | State.CANCELLED:
            return replace(job, phase=Ended(now, state, entry.reason))


def _queued(job: Job, entry: Entry) -> Job:
    stop_s = job.stop_s
    if isinstance(job.phase, Stopping):
        # A program that was asked to stop works on, up to its safe point.
        stop_s = entry.now - max(job.phase.since_s, job.progress_at_s)
    is_resizing = entry.purpose is Purpose.RESIZE
    service = job.service if is_resizing else replace(job.service, last_waiting_s=0.0)
    is_idle = job.epochs_saved <= job.epochs_done_at_start
    came_to_nothing = is_idle and job.service.last_running_s < LOST_SOON_S
    queued = replace(
        job,
        phase=Queued(entry.now, is_resizing=is_resizing),
        service=service,
        stop_s=stop_s,
        idle_attempts=job.idle_attempts if is_idle else 0,
        losses=(job.losses if came_to_nothing else 0) + (entry.purpose is Purpose.LOST),
    )
    if entry.purpose is Purpose.RETRY:
        waiting = _backing_off(queued, entry, doublings=job.failures)
        n_idle = queued.idle_attempts + is_idle
        return replace(waiting, failures=job.failures + 1, idle_attempts=n_idle)
    if entry.purpose is Purpose.LOST and queued.losses > 1:
        return _backing_off(queued, entry, doublings=queued.losses - 2)
    return queued


def _backing_off(job: Job, entry: Entry, *, doublings: int) -> Job:
    wait_s = min(BACKOFF_MAX_S, entry.backoff_s * 2 ** min(doublings, DOUBLINGS_MAX))
    phase = Queued(entry.now, not_before_s=entry.now + wait_s, reason=entry.reason)
    return replace(job, phase=phase)


def _starting(job: Job, entry: Entry) -> Job:
    service = job.service
    if not (isinstance(job.phase, Queued) and job.phase.is_resizing):
        service = replace(service, last_running_s=0.0, last_gpu_s=0.0)
    return replace(
        job,
        phase=Starting(entry.now, entry.allocation),
        attempt=job.attempt + 1,
        generation=0,
        workers_numbered=len(entry.allocation),
        service=service,
        first_started_s=min(job.first_started_s, entry.now),
        epochs_done_at_start=job.epochs_done,
        hears=False,
        deaths=0,
        died_at_s=-math.inf,
    )


def _running(job: Job, entry: Entry) -> Job:
    phase = job.phase
    if isinstance(phase, Starting):
        running = Running(entry.now, phase.allocation, job.numbers, exits=phase.exits)
        start_s = entry.now - phase.since_s
        return replace(job, phase=running, start_s=start_s, saved_at_s=entry.now)
    assert isinstance(phase, Running)
    if entry.gone:
        return _without(job, entry.gone, phase=phase)
    if entry.allocation:
        return _with_newcomers(job, entry.allocation, phase=phase)
    exits = {n: code for n, code in phase.exits.items() if n in phase.joining_numbers}
    running = Running(entry.now, phase.joining, phase.joining_numbers, exits=exits)
    return replace(job, phase=running)


def _with_newcomers(job: Job, joining: Allocation, *, phase: Running) -> Job:
    """Who stays keeps the number; every newcomer gets one that nobody had before, so that no late
    fact about a worker who left is taken for one about a worker who came."""
    numbers: list[int] = []
    next_number = job.workers_numbered
    for i, slot in enumerate(joining):
        if i < len(phase.allocation) and phase.allocation[i] == slot:
            numbers.append(phase.numbers[i])
        else:
            numbers.append(next_number)
            next_number += 1
    return replace(
        job,
        phase=replace(phase, joining=joining, joining_numbers=tuple(numbers)),
        generation=job.generation + 1,
        workers_numbered=next_number,
    )


def _without(job: Job, gone: frozenset[int], *, phase: Running) -> Job:
    """The next generation has no place for the dead. If it had none anyway, it stays the next,
    unless it waits for newcomers: then the others go on without the dead before these have come,
    for which the number of the one before is free."""
    numbers, allocation = _left(phase.numbers, phase.allocation, gone=gone)
    coming = (phase.joining_numbers, phase.joining) if phase.joining else (numbers, allocation)
    joining_numbers, joining = _left(*coming, gone=gone)
    has_newcomers = not set(joining_numbers).issubset(phase.numbers)
    missed_by = {*phase.joining_numbers, *(phase.numbers if has_newcomers else ())}
    is_missed = not gone.isdisjoint(missed_by or phase.numbers)
    changing = replace(
        phase,
        allocation=allocation,
        numbers=numbers,
        joining=joining,
        joining_numbers=joining_numbers,
    )
    return replace(job, phase=changing, generation=job.generation + is_missed)


def _left(
    numbers: tuple[int, ...], allocation: Allocation, *, gone: frozenset[int]
) -> tuple[tuple[int, ...], Allocation]:
    places = zip(numbers, allocation, strict=True)
    kept = [(number, slot) for number, slot in places if number not in gone]
    return tuple(number for number, _ in kept), tuple(slot for _, slot in kept)


def _stopping(job: Job, entry: Entry) -> Job:
    phase = job.phase
    assert isinstance(phase, HoldsGpus)
    if isinstance(phase, Stopping):
        return replace(job, phase=_stopping_still(job, phase, entry=entry))
    insists_at_s = entry.now + job.spec.grace_s if asks_first(job, entry.purpose) else None
    stopping = Stopping(
        entry.now,
        job.members,
        job.numbers,
        entry.purpose,
        entry.reason,
        exits=phase.exits,
        insists_at_s=insists_at_s,
    )
    return replace(job, phase=stopping)


def asks_first(job: Job, purpose: Purpose) -> bool:
    """Whether the program is asked to stop before it is told to. One that can do without others
    comes to a safe point even if it has lost some."""
    can_wait = purpose in ASKING or (purpose in BEREFT and job.spec.mode is Mode.LIVE)
    return job.hears and can_wait and job.spec.grace_s > 0


def _stopping_still(job: Job, phase: Stopping, *, entry: Entry) -> Stopping:
    """With another end, or no longer only asked: the time is up, or the end cannot wait."""
    if changes_the_end(phase, entry.purpose):
        phase = replace(phase, purpose=entry.purpose, reason=entry.reason)
    insists_at_s = phase.insists_at_s
    if insists_at_s is None or (entry.now < insists_at_s and asks_first(job, phase.purpose)):
        return phase
    return replace(phase, insists_at_s=None)


def changes_the_end(phase: Stopping, purpose: Purpose) -> bool:
    """A more final purpose wins; a release takes back a hold that has not come about yet."""
    if purpose is Purpose.PREEMPT:
        return phase.purpose is Purpose.HOLD
    return FINALITY.index(purpose) > FINALITY.index(phase.purpose)
