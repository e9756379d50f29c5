"""Builds a job in its next state: with the state's data, and with its service time brought up to
date.

Pure functions of one job. The job table calls `enter` with the state that the state table returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rota.core.estimation.service_time import rolled_back, service_at
from rota.core.lifecycle.states import JobState, Purpose, Trigger
from rota.core.model.allocation import Allocation
from rota.core.model.job import (
    ActivePhase,
    Ended,
    Held,
    Job,
    Mode,
    Queued,
    Running,
    ServiceTime,
    Starting,
    Stopping,
)

BACKOFF_MAX_S = 600.0
DOUBLINGS_MAX = 30
EARLY_LOSS_S = 60.0
"""An attempt whose workers are lost before this time, without progress, achieved nothing."""
GRACEFUL_PURPOSES = (Purpose.RESIZE, Purpose.PREEMPT, Purpose.HOLD)
"""Purposes for which a program that listens may save its state first."""
WORKER_LOSS_PURPOSES = (Purpose.LOST, Purpose.RETRY)
"""Purposes of a stop that follows a loss of workers."""
UNSUCCESSFUL_STATES = (JobState.HELD, JobState.QUEUED, JobState.FAILED, JobState.CANCELLED)
"""States that end an attempt without success."""
PURPOSES_BY_FINALITY = tuple(Purpose)
"""A job that is stopping for two purposes follows the more final purpose."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """The reaction of a job to an event: the trigger, if any, and the reason.

    `job` has the event recorded, before any transition. `allocation` is the target of a start or a
    resize. `gone` are dead workers that the job continues without.
    """

    job: Job
    trigger: Trigger | None
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TransitionContext:
    """The data of one transition."""

    now: float
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()
    backoff_s: float = 0.0
    gone: frozenset[int] = frozenset()


def enter(job: Job, state: JobState, *, context: TransitionContext) -> Job:
    """The job in its next state, with the service time of its last state added."""
    job = replace(job, service=_service_until(job, state, now=context.now))
    if job.is_active and state in UNSUCCESSFUL_STATES:
        job = rolled_back(job)
    now = context.now
    match state:
        case JobState.HELD:
            return replace(job, phase=Held(now))
        case JobState.QUEUED:
            return _queued(job, context)
        case JobState.STARTING:
            return _starting(job, context)
        case JobState.RUNNING:
            return _running(job, context)
        case JobState.STOPPING:
            return _stopping(job, context)
        case JobState.SUCCEEDED | JobState.FAILED | JobState.CANCELLED:
            return replace(job, phase=Ended(now, state, context.reason))


def _service_until(job: Job, state: JobState, *, now: float) -> ServiceTime:
    """A job that stops or leaves its GPUs is charged up to the last known end of a worker, even if
    the end was noticed later. If other workers turn out to have run longer, the rest follows with
    their ends."""
    ended_s = job.workers_ended_s
    if not job.is_active or state in (JobState.STARTING, JobState.RUNNING) or math.isinf(ended_s):
        return service_at(job, now)
    charged = service_at(job, min(now, max(ended_s, job.service.as_of_s)))
    return charged if state is JobState.STOPPING else replace(charged, as_of_s=now)


def _queued(job: Job, context: TransitionContext) -> Job:
    stop_s = job.stop_s
    if isinstance(job.phase, Stopping):
        # A program that was asked to stop keeps working until its safe point.
        stop_s = context.now - max(job.phase.since_s, job.progress_at_s)
    is_resizing = context.purpose is Purpose.RESIZE
    service = job.service if is_resizing else replace(job.service, last_waiting_s=0.0)
    is_idle = job.epochs_saved <= job.epochs_done_at_start
    achieved_nothing = is_idle and job.service.last_running_s < EARLY_LOSS_S
    queued = replace(
        job,
        phase=Queued(context.now, is_resizing=is_resizing),
        service=service,
        stop_s=stop_s,
        idle_attempts=job.idle_attempts if is_idle else 0,
        losses=(job.losses if achieved_nothing else 0) + (context.purpose is Purpose.LOST),
    )
    if context.purpose is Purpose.RETRY:
        waiting = _backing_off(queued, context, doublings=job.failures)
        n_idle = queued.idle_attempts + is_idle
        return replace(waiting, failures=job.failures + 1, idle_attempts=n_idle)
    if context.purpose is Purpose.LOST and queued.losses > 1:
        return _backing_off(queued, context, doublings=queued.losses - 2)
    return queued


def _backing_off(job: Job, context: TransitionContext, *, doublings: int) -> Job:
    wait_s = min(BACKOFF_MAX_S, context.backoff_s * 2 ** min(doublings, DOUBLINGS_MAX))
    phase = Queued(context.now, not_before_s=context.now + wait_s, reason=context.reason)
    return replace(job, phase=phase)


def _starting(job: Job, context: TransitionContext) -> Job:
    service = job.service
    if not (isinstance(job.phase, Queued) and job.phase.is_resizing):
        service = replace(service, last_running_s=0.0, last_gpu_s=0.0)
    return replace(
        job,
        phase=Starting(context.now, context.allocation),
        attempt=job.attempt + 1,
        generation=0,
        workers_numbered=len(context.allocation),
        service=service,
        first_started_s=min(job.first_started_s, context.now),
        epochs_done_at_start=job.epochs_done,
        hears=False,
        deaths=0,
        died_at_s=-math.inf,
        workers_ended_s=-math.inf,
    )


def _running(job: Job, context: TransitionContext) -> Job:
    phase = job.phase
    if isinstance(phase, Starting):
        running = Running(context.now, phase.allocation, job.numbers, exits=phase.exits)
        start_s = context.now - phase.since_s
        return replace(job, phase=running, start_s=start_s, saved_at_s=context.now)
    assert isinstance(phase, Running)
    if context.gone:
        return _without_workers(job, context.gone, phase=phase)
    if context.allocation:
        return _with_newcomers(job, context.allocation, phase=phase)
    exits = {n: code for n, code in phase.exits.items() if n in phase.joining_numbers}
    running = Running(context.now, phase.joining, phase.joining_numbers, exits=exits)
    return replace(job, phase=running)


def _with_newcomers(job: Job, joining: Allocation, *, phase: Running) -> Job:
    """Start the next generation. A worker that stays keeps its number. Each new worker gets a
    number that was never used in this attempt, so that a late event about an earlier worker cannot
    be taken for one about a new worker."""
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


def _without_workers(job: Job, gone: frozenset[int], *, phase: Running) -> Job:
    """Remove dead workers from both generations.

    The generation number grows if the next generation misses a dead worker. If the next generation
    waits for new workers, the current one must continue without its dead first, and that also takes
    a generation number.
    """
    numbers, allocation = _remaining(phase.numbers, phase.allocation, gone=gone)
    coming = (phase.joining_numbers, phase.joining) if phase.joining else (numbers, allocation)
    joining_numbers, joining = _remaining(*coming, gone=gone)
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


def _remaining(
    numbers: tuple[int, ...], allocation: Allocation, *, gone: frozenset[int]
) -> tuple[tuple[int, ...], Allocation]:
    places = zip(numbers, allocation, strict=True)
    kept = [(number, slot) for number, slot in places if number not in gone]
    return tuple(number for number, _ in kept), tuple(slot for _, slot in kept)


def _stopping(job: Job, context: TransitionContext) -> Job:
    phase = job.phase
    assert isinstance(phase, ActivePhase)
    if isinstance(phase, Stopping):
        return replace(job, phase=_still_stopping(job, phase, context=context))
    insists_at_s = (
        context.now + job.spec.grace_s if stops_gracefully(job, context.purpose) else None
    )
    stopping = Stopping(
        context.now,
        job.members,
        job.numbers,
        context.purpose,
        context.reason,
        exits=phase.exits,
        insists_at_s=insists_at_s,
    )
    return replace(job, phase=stopping)


def stops_gracefully(job: Job, purpose: Purpose) -> bool:
    """Whether the program is asked to stop before its workers are stopped. A live job reaches a
    safe point even after it lost workers."""
    can_wait = purpose in GRACEFUL_PURPOSES or (
        purpose in WORKER_LOSS_PURPOSES and job.spec.mode is Mode.LIVE
    )
    return job.hears and can_wait and job.spec.grace_s > 0


def _still_stopping(job: Job, phase: Stopping, *, context: TransitionContext) -> Stopping:
    """The phase of a job that is already stopping: with a more final purpose, or with its workers
    stopped now, because the grace period is over or the new purpose cannot wait."""
    if overrides_purpose(phase, context.purpose):
        phase = replace(phase, purpose=context.purpose, reason=context.reason)
    insists_at_s = phase.insists_at_s
    if insists_at_s is None or (
        context.now < insists_at_s and stops_gracefully(job, phase.purpose)
    ):
        return phase
    return replace(phase, insists_at_s=None)


def overrides_purpose(phase: Stopping, purpose: Purpose) -> bool:
    """Whether a new purpose replaces the current one: a more final purpose does, and a release
    cancels a pending hold."""
    if purpose is Purpose.PREEMPT:
        return phase.purpose is Purpose.HOLD
    return PURPOSES_BY_FINALITY.index(purpose) > PURPOSES_BY_FINALITY.index(phase.purpose)


def early_end(job: Job) -> str:
    """The text for an end before all epochs were done; empty if unknown."""
    if 0 < job.epochs_done < job.epochs < math.inf:
        return f"ended early at epoch {job.epochs_done:g} of {job.epochs:g}"
    return ""
