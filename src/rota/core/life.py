"""What a fact means for one job: the trigger to follow in the state table, and the job after it.

Pure functions of one job. The kernel calls `react` and `enter`; only `states.follow` decides
which state comes next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from rota.core.events import (
    JobCancelled,
    JobEvent,
    JobHeld,
    JobReleased,
    JobSubmitted,
    MembershipChanged,
    ProgressReported,
    WorkersExited,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model import (
    Allocation,
    Ended,
    Held,
    HoldsGpus,
    Job,
    JobSpec,
    Purpose,
    Queued,
    Running,
    Service,
    Starting,
    Stopping,
    n_nodes,
)
from rota.core.progress import service_at
from rota.core.speed import PRIOR, Size, SpeedModel, estimated, learn, sized_for
from rota.core.states import State, Trigger

LOST = -1
"""Stands for the exit code of a worker that went with its node."""
IDLE_ATTEMPTS_MAX = 3
BACKOFF_MAX_S = 600.0
FIRST_SIGNAL_CODE = 128
FINALITY = tuple(Purpose)
"""A job that is stopping for two purposes follows the more final one."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """A trigger, and why. `job` is the job with the fact written down, before any transition."""

    job: Job
    trigger: Trigger | None
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT


def submitted(event: JobSubmitted, now: float, known: SpeedModel | None) -> Job:
    """A new job. `known` is what earlier jobs of its category measured."""
    return Job(
        id=event.job_id,
        spec=event.spec,
        submitted_s=now,
        phase=Held(now) if event.is_held else Queued(now),
        service=Service(as_of_s=now),
        speed=sized_for(known, event.spec.max_workers) if known else _first_guess(event.spec),
    )


def _first_guess(spec: JobSpec) -> SpeedModel:
    estimate = spec.estimate
    if estimate is None:
        return PRIOR
    epoch_s = estimate.seconds / spec.epochs
    return estimated(
        epoch_s, workers=estimate.workers, speedups=estimate.speedups or PRIOR.speedups
    )


def react(job: Job, event: JobEvent, now: float) -> Reaction:
    match event:
        case JobCancelled():
            return Reaction(job, Trigger.CANCEL, _by("cancelled", event.actor), Purpose.CANCEL)
        case JobHeld():
            return Reaction(job, Trigger.HOLD, _by("held", event.actor), Purpose.HOLD)
        case JobReleased():
            return Reaction(job, Trigger.RELEASE, _by("released", event.actor))
        case _ if event.attempt != job.attempt or not isinstance(job.phase, HoldsGpus):
            return Reaction(job, None)
        case WorkersStarted():
            return _started(job, event)
        case WorkersExited():
            return _gone(job, event.codes)
        case WorkersLost():
            return _gone(job, dict.fromkeys(event.workers, LOST))
        case MembershipChanged():
            is_news = isinstance(job.phase, Running) and event.generation == job.generation
            is_news = is_news and bool(job.phase.joining)
            return Reaction(job, Trigger.RESIZED if is_news else None)
        case ProgressReported():
            return _progressed(job, event, now)
        case _:
            assert_never(event)


def _by(deed: str, actor: str) -> str:
    return f"{deed} by {actor}" if actor else deed


def _started(job: Job, event: WorkersStarted) -> Reaction:
    if not isinstance(job.phase, Starting):
        return Reaction(job, Trigger.STARTED)
    started = job.phase.started | event.workers
    job = replace(job, phase=replace(job.phase, started=started))
    is_complete = len(started) >= len(job.allocation)
    return Reaction(job, Trigger.STARTED if is_complete else None)


def _gone(job: Job, codes: Mapping[int, int]) -> Reaction:
    """Some workers ended. The first word about each worker counts."""
    phase = job.phase
    assert isinstance(phase, HoldsGpus)
    members = range(len(job.members))
    news = {worker: code for worker, code in codes.items() if worker in members}
    job = replace(job, phase=replace(phase, exits={**news, **phase.exits}))
    exits = job.phase.exits if isinstance(job.phase, HoldsGpus) else {}
    is_all = len(exits) >= len(members)
    if isinstance(phase, Stopping):
        return _stopped(job, phase) if is_all else Reaction(job, None)
    worst = _worst(exits)
    if worst == 0:
        return Reaction(job, Trigger.FINISHED, _early(job)) if is_all else Reaction(job, None)
    purpose, reason = _verdict(job, worst)
    if not is_all:
        return Reaction(job, Trigger.WORKER_LOST, reason, purpose)
    trigger = Trigger.GAVE_UP if purpose is Purpose.FAIL else Trigger.BROKE_DOWN
    return Reaction(job, trigger, reason, purpose)


def _worst(exits: Mapping[int, int]) -> int:
    """The loss of a node explains all the rest; a worker's own failure explains signals."""
    codes = set(exits.values())
    own = [code for code in codes if 0 < code < FIRST_SIGNAL_CODE]
    if LOST in codes:
        return LOST
    return min(own) if own else max(codes)


def _early(job: Job) -> str:
    if 0 < job.epochs_done < job.spec.epochs:
        return f"ended early at epoch {job.epochs_done:g} of {job.spec.epochs:g}"
    return ""


def _verdict(job: Job, code: int) -> tuple[Purpose, str]:
    """Whether a broken attempt is tried again, and in which words."""
    if code == LOST:
        return Purpose.LOST, "lost with its node"
    spec = job.spec
    what = f"exit code {code}"
    if code < FIRST_SIGNAL_CODE and code not in spec.retry_on:
        return Purpose.FAIL, what
    if job.failures >= spec.retries:
        return Purpose.FAIL, f"{what}, no retries left" if spec.retries else what
    is_idle = job.epochs_done <= job.epochs_done_at_start
    if is_idle and job.idle_attempts + 1 >= IDLE_ATTEMPTS_MAX:
        return Purpose.FAIL, f"{what}; {IDLE_ATTEMPTS_MAX} attempts in a row made no progress"
    return Purpose.RETRY, f"{what}, will be tried again"


def _stopped(job: Job, phase: Stopping) -> Reaction:
    """All workers are gone after our request: what they said with their exit does not count."""
    if job.epochs_done >= job.spec.epochs:
        return Reaction(job, Trigger.FINISHED)
    match phase.purpose:
        case Purpose.HOLD:
            trigger = Trigger.STOPPED_TO_HOLD
        case Purpose.CANCEL:
            trigger = Trigger.STOPPED_TO_CANCEL
        case Purpose.FAIL:
            trigger = Trigger.GAVE_UP
        case Purpose.RESIZE | Purpose.PREEMPT | Purpose.RETRY | Purpose.LOST:
            trigger = Trigger.STOPPED
    return Reaction(job, trigger, phase.reason, phase.purpose)


def _progressed(job: Job, event: ProgressReported, now: float) -> Reaction:
    """Nonsense (not finite, backwards, beyond the end) is dropped."""
    done = event.epochs_done
    if not (math.isfinite(done) and job.epochs_done <= done <= job.spec.epochs):
        return Reaction(job, None)
    speed = job.speed
    if event.epoch_s is not None:
        size = Size(len(job.allocation), n_nodes(job.allocation) > 1)
        speed = learn(speed, size, epoch_s=event.epoch_s, max_workers=job.spec.max_workers)
    job = replace(
        job,
        epochs_done=done,
        progress_at_s=now,
        speed=speed,
        memory_bytes_seen=max(job.memory_bytes_seen, event.memory_bytes),
    )
    return Reaction(job, Trigger.PROGRESS)


@dataclass(frozen=True, slots=True)
class Entry:
    """With what a job enters its next state."""

    now: float
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()
    backoff_s: float = 0.0


def enter(job: Job, state: State, entry: Entry) -> Job:
    """The job in its next state, its time accounts closed for the last one."""
    job = replace(job, service=service_at(job, entry.now))
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
    stop_s = entry.now - job.phase.since_s if isinstance(job.phase, Stopping) else job.stop_s
    is_resizing = entry.purpose is Purpose.RESIZE
    service = job.service if is_resizing else replace(job.service, last_waiting_s=0.0)
    phase = Queued(entry.now, is_resizing=is_resizing)
    queued = replace(job, phase=phase, service=service, stop_s=stop_s)
    if entry.purpose is not Purpose.RETRY:
        return queued
    is_idle = job.epochs_done <= job.epochs_done_at_start
    wait_s = min(BACKOFF_MAX_S, entry.backoff_s * 2**job.failures)
    return replace(
        queued,
        phase=Queued(entry.now, not_before_s=entry.now + wait_s),
        failures=job.failures + 1,
        idle_attempts=job.idle_attempts + 1 if is_idle else 0,
    )


def _starting(job: Job, entry: Entry) -> Job:
    service = job.service
    if not (isinstance(job.phase, Queued) and job.phase.is_resizing):
        service = replace(service, last_running_s=0.0, last_gpu_s=0.0)
    return replace(
        job,
        phase=Starting(entry.now, entry.allocation),
        attempt=job.attempt + 1,
        generation=0,
        service=service,
        first_started_s=min(job.first_started_s, entry.now),
        epochs_done_at_start=job.epochs_done,
    )


def _running(job: Job, entry: Entry) -> Job:
    phase = job.phase
    if isinstance(phase, Starting):
        running = Running(entry.now, phase.allocation, exits=phase.exits)
        return replace(job, phase=running, start_s=entry.now - phase.since_s)
    assert isinstance(phase, Running)
    if entry.allocation:
        joining = replace(phase, joining=entry.allocation)
        return replace(job, phase=joining, generation=job.generation + 1)
    return replace(job, phase=Running(entry.now, phase.joining))


def _stopping(job: Job, entry: Entry) -> Job:
    phase = job.phase
    assert isinstance(phase, HoldsGpus)
    if not isinstance(phase, Stopping):
        stopping = Stopping(entry.now, job.members, entry.purpose, entry.reason, phase.exits)
    elif FINALITY.index(entry.purpose) > FINALITY.index(phase.purpose):
        stopping = replace(phase, purpose=entry.purpose, reason=entry.reason)
    else:
        stopping = phase
    return replace(job, phase=stopping)
