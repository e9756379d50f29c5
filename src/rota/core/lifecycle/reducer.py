"""What a fact means for one job: the trigger to follow in the state table, and the job after it.

Pure functions of one job, called by the roster. Only `states.follow` decides which state comes
next, and `phases.enter` takes the job there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from rota.core.deaths import never_joined
from rota.core.events import (
    JobCancelled,
    JobEvent,
    JobHeld,
    JobPrioritised,
    JobReleased,
    JobRemarked,
    JobResized,
    JobSubmitted,
    MembershipChanged,
    NewcomersMissing,
    ProgressReported,
    WorkersExited,
    WorkersHindered,
    WorkersLost,
    WorkerSlow,
    WorkersSilent,
    WorkersStarted,
)
from rota.core.exits import gone
from rota.core.model import (
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
from rota.core.reaction import LOST, Reaction, early_end
from rota.core.reports import progressed
from rota.core.speed import PRIOR, SpeedModel, estimated, sized_for
from rota.core.states import Trigger


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
        case JobResized() | JobPrioritised():
            return _changed(job, event)
        case _ if event.attempt != job.attempt or not isinstance(job.phase, HoldsGpus):
            return Reaction(job, None)
        case WorkersStarted():
            return _started(job, event)
        case WorkersExited() | WorkersLost():
            return gone(job, event, codes=_codes(event), now=now)
        case NewcomersMissing():
            return never_joined(job, event.workers, now=now)
        case WorkersHindered() | WorkersSilent() | WorkerSlow() | JobRemarked():
            return _remarked(job, event)
        case MembershipChanged():
            return _switched(job, event)
        case ProgressReported():
            after = progressed(job, event, now=now)
            return Reaction(after, Trigger.PROGRESS) if after else Reaction(job, None)
        case _:
            assert_never(event)


def _codes(event: WorkersExited | WorkersLost) -> Mapping[int, int]:
    if isinstance(event, WorkersLost):
        return dict.fromkeys(event.workers, LOST)
    return event.codes


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
    return Reaction(job, trigger, request.reason or _by(deed, request.actor), purpose)


def _changed(job: Job, request: JobResized | JobPrioritised) -> Reaction:
    """What a user wants otherwise than before; a plan will see to it."""
    if isinstance(request, JobResized):
        return _pinned(job, request)
    spec = replace(job.spec, priority=request.priority)
    deed = _by(f"priority set to {request.priority}", request.actor)
    return Reaction(replace(job, spec=spec), None, deed)


def _pinned(job: Job, request: JobResized) -> Reaction:
    """Only a size that the job can have, which whoever asks has been told."""
    workers, spec = request.workers, job.spec
    if workers is not None and not spec.min_workers <= workers <= spec.max_workers:
        return Reaction(job, None)
    deed = "size left to the policy" if workers is None else f"resized to {workers}"
    return Reaction(replace(job, pinned_workers=workers), None, _by(deed, request.actor))


def _by(deed: str, actor: str) -> str:
    return f"{deed} by {actor}" if actor else deed


def _started(job: Job, event: WorkersStarted) -> Reaction:
    if not isinstance(job.phase, Starting):
        return Reaction(job, Trigger.STARTED)
    started = job.phase.started | event.workers.intersection(job.numbers)
    job = replace(job, phase=replace(job.phase, started=started))
    is_complete = len(started) == len(job.allocation)
    return Reaction(job, Trigger.STARTED if is_complete else None)


def _remarked(
    job: Job, event: WorkersHindered | WorkersSilent | WorkerSlow | JobRemarked
) -> Reaction:
    """What is worth a word in the story, and leads to no other state."""
    if isinstance(event, WorkersSilent | WorkerSlow):
        return Reaction(job, None)  # To kill them is an order; that they are gone, a fact.
    if isinstance(event, JobRemarked):
        return Reaction(job, None, event.reason)
    reason = f"cannot start: {event.reason}"
    if isinstance(job.phase, Starting):
        if job.phase.hindrance == reason:
            return Reaction(job, None)  # Told once, however many workers it keeps from starting.
        job = replace(job, phase=replace(job.phase, hindrance=reason))
    return Reaction(job, None, reason)


def _switched(job: Job, event: MembershipChanged) -> Reaction:
    phase = job.phase
    if not isinstance(phase, Running) or not phase.joining or event.generation != job.generation:
        return Reaction(job, None)
    job = replace(job, resize_s=_measured(event.pause_s, job.resize_s))
    if phase.exits.keys() >= set(phase.joining_numbers):
        # The news that all its members had finished overtook the news that they had come.
        return Reaction(job, Trigger.FINISHED, early_end(job))
    return Reaction(job, Trigger.RESIZED)


def _measured(pause_s: float | None, before_s: float | None) -> float | None:
    return pause_s if pause_s is not None and 0 <= pause_s < math.inf else before_s
