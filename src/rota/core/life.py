"""What a fact means for one job: the trigger to follow in the state table, and the job after it.

Pure functions of one job, called by the roster. Only `states.follow` decides which state comes
next, and `phases.enter` takes the job there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from rota.core.events import (
    JobCancelled,
    JobEvent,
    JobHeld,
    JobReleased,
    JobResized,
    JobSubmitted,
    MembershipChanged,
    ProgressReported,
    WorkersExited,
    WorkersLost,
    WorkersSilent,
    WorkersStarted,
)
from rota.core.model import (
    Allocation,
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
)
from rota.core.phases import changes_the_end
from rota.core.reports import progressed
from rota.core.speed import PRIOR, SpeedModel, estimated, sized_for
from rota.core.states import Trigger

LOST = -1
"""Stands for the exit code of a worker that went with its node."""
IDLE_ATTEMPTS_MAX = 3
RETRIES_OF_NOBODYS_MISTAKE = 2
"""A failure that is nobody's mistake is tried again this often, even if the job asks for less."""
FIRST_SIGNAL_CODE = 128


@dataclass(frozen=True, slots=True)
class Reaction:
    """A trigger, and why. `job` is the job with the fact written down, before any transition;
    `allocation` is where a start or a resize leads."""

    job: Job
    trigger: Trigger | None
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()


def submitted(event: JobSubmitted, now: float, *, known: SpeedModel | None) -> Job:
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


def react(job: Job, event: JobEvent, *, now: float) -> Reaction:
    match event:
        case JobCancelled() | JobHeld() | JobReleased():
            return _asked(job, event)
        case JobResized():
            return _pinned(job, event)
        case _ if event.attempt != job.attempt or not isinstance(job.phase, HoldsGpus):
            return Reaction(job, None)
        case WorkersStarted():
            return _started(job, event)
        case WorkersExited():
            return _gone(job, event, codes=event.codes, now=now)
        case WorkersLost():
            return _gone(job, event, codes=dict.fromkeys(event.workers, LOST), now=now)
        case WorkersSilent():
            return Reaction(job, None)  # To kill them is an order; that they are gone, a fact.
        case MembershipChanged():
            return _switched(job, event)
        case ProgressReported():
            after = progressed(job, event, now=now)
            return Reaction(after, Trigger.PROGRESS) if after else Reaction(job, None)
        case _:
            assert_never(event)


def timed_out(job: Job) -> Reaction | None:
    """The moment came that the job's timer was set to."""
    match job.phase:
        case Stopping(purpose=purpose):
            reason = f"has not stopped within {job.spec.grace_s:g} s of being asked"
            return Reaction(job, Trigger.INSIST, reason, purpose)
        case Starting() | Running():
            reason = f"reached its time limit of {job.spec.time_limit_s:g} s"
            return Reaction(job, Trigger.STOP, reason, Purpose.FAIL)
        case _:
            return None


def _asked(job: Job, request: JobCancelled | JobHeld | JobReleased) -> Reaction:
    """What a user asked for. A job that is stopping already heeds only what changes its end."""
    match request:
        case JobCancelled():
            trigger, deed, purpose = Trigger.CANCEL, "cancelled", Purpose.CANCEL
        case JobHeld():
            trigger, deed, purpose = Trigger.HOLD, "held", Purpose.HOLD
        case JobReleased():
            trigger, deed, purpose = Trigger.RELEASE, "released", Purpose.PREEMPT
    if isinstance(job.phase, Stopping) and not changes_the_end(job.phase, purpose):
        return Reaction(job, None)
    return Reaction(job, trigger, _by(deed, request.actor), purpose)


def _pinned(job: Job, request: JobResized) -> Reaction:
    """Only a size that the job can have, which whoever asks has been told."""
    workers, spec = request.workers, job.spec
    if workers is not None and not spec.min_workers <= workers <= spec.max_workers:
        return Reaction(job, None)
    return Reaction(replace(job, pinned_workers=workers), None)


def _by(deed: str, actor: str) -> str:
    return f"{deed} by {actor}" if actor else deed


def _started(job: Job, event: WorkersStarted) -> Reaction:
    if not isinstance(job.phase, Starting):
        return Reaction(job, Trigger.STARTED)
    started = job.phase.started | event.workers.intersection(job.numbers)
    job = replace(job, phase=replace(job.phase, started=started))
    is_complete = len(started) == len(job.allocation)
    return Reaction(job, Trigger.STARTED if is_complete else None)


def _switched(job: Job, event: MembershipChanged) -> Reaction:
    phase = job.phase
    if not isinstance(phase, Running) or not phase.joining or event.generation != job.generation:
        return Reaction(job, None)
    if phase.exits.keys() >= set(phase.joining_numbers):
        # The news that all its members had finished overtook the news that they had come.
        return Reaction(job, Trigger.FINISHED, _early(job))
    return Reaction(job, Trigger.RESIZED)


def _gone(
    job: Job, event: WorkersExited | WorkersLost, *, codes: Mapping[int, int], now: float
) -> Reaction:
    """Some workers ended. The first word about each worker counts."""
    phase = job.phase
    assert isinstance(phase, HoldsGpus)
    numbers = job.numbers
    news = {n: code for n, code in codes.items() if n in numbers and n not in phase.exits}
    if not news:
        return Reaction(job, None)
    exits = {**phase.exits, **news}
    phase = replace(phase, exits=exits)
    job = replace(job, phase=phase)
    is_all = len(exits) == len(numbers)
    if isinstance(phase, Stopping):
        if is_all:
            return _stopped(job, phase, last=_said_by(news, event))
        return _left_behind(job, phase, news=news, now=now)
    worst = _worst(exits)
    if worst == 0:
        reason = _joined(_early(job), event.reason)
        return Reaction(job, Trigger.FINISHED, reason) if is_all else Reaction(job, None)
    # Until now all exits were 0, or the job would be stopping: these words are about the worst.
    purpose, reason = _verdict(job, worst, event=event)
    if not is_all:
        return Reaction(job, Trigger.WORKER_LOST, reason, purpose)
    trigger = Trigger.GAVE_UP if purpose is Purpose.FAIL else Trigger.BROKE_DOWN
    return Reaction(job, trigger, reason, purpose)


def _left_behind(job: Job, phase: Stopping, *, news: Mapping[int, int], now: float) -> Reaction:
    """Who was asked to stop and waits for a worker that was killed will never come to a safe
    point."""
    is_killed = any(code == LOST or code >= FIRST_SIGNAL_CODE for code in news.values())
    if phase.insists_at_s is None or not is_killed:
        return Reaction(job, None)
    hopeless = replace(job, phase=replace(phase, insists_at_s=now))
    return Reaction(hopeless, Trigger.INSIST, "a worker was lost on the way", phase.purpose)


def _worst(exits: Mapping[int, int]) -> int:
    """The loss of a node explains all the rest; a worker's own failure explains signals."""
    codes = set(exits.values())
    own = [code for code in codes if 0 < code < FIRST_SIGNAL_CODE]
    if LOST in codes:
        return LOST
    return min(own) if own else max(codes)


def _early(job: Job) -> str:
    if 0 < job.epochs_done < job.epochs:
        return f"ended early at epoch {job.epochs_done:g} of {job.epochs:g}"
    return ""


def _verdict(job: Job, code: int, *, event: WorkersExited | WorkersLost) -> tuple[Purpose, str]:
    """Whether a broken attempt is tried again, and in which words."""
    if code == LOST or isinstance(event, WorkersLost):
        return Purpose.LOST, f"lost: {event.reason}" if event.reason else "lost with its node"
    spec, n_retries = job.spec, job.spec.retries
    said = _joined(event.finding, event.reason)
    what, comma = (f"exit code {code}: {said}", ";") if said else (f"exit code {code}", ",")
    if event.is_retriable:
        n_retries = max(n_retries, RETRIES_OF_NOBODYS_MISTAKE)
    elif code < FIRST_SIGNAL_CODE and code not in spec.retry_on:
        return Purpose.FAIL, what
    if job.failures >= n_retries:
        return Purpose.FAIL, f"{what}{comma} no retries left" if n_retries else what
    is_idle = job.epochs_saved <= job.epochs_done_at_start
    if is_idle and job.idle_attempts + 1 >= IDLE_ATTEMPTS_MAX:
        return Purpose.FAIL, f"{what}; {IDLE_ATTEMPTS_MAX} attempts in a row made no progress"
    return Purpose.RETRY, f"{what}{comma} will be tried again"


def _joined(*words: str) -> str:
    return "; ".join(each for each in words if each)


def _said_by(news: Mapping[int, int], event: WorkersExited | WorkersLost) -> str:
    """The engine's words about workers that ended last. What their log says does not count: to be
    stopped looks like a failure there."""
    if not event.reason:
        return ""
    who = "worker" if len(news) == 1 else "workers"
    return f"{who} {', '.join(str(number) for number in sorted(news))}: {event.reason}"


def _stopped(job: Job, phase: Stopping, *, last: str) -> Reaction:
    """All workers are gone after our request: what they said with their exit does not count, but
    the engine's words about the last of them (it had to be killed) belong into the story."""
    if job.epochs_done >= job.epochs:
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
    return Reaction(job, trigger, _joined(phase.reason, last), phase.purpose)
