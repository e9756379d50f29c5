"""Turns an event about one job into a trigger of the state table.

Pure functions of one job, called by the job table. Only `states.next_state` decides which state
follows, and `transitions.enter` builds the job in that state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from rota.core.estimation.speed_model import PRIOR, PRIOR_SPEEDUPS, SpeedModel, estimated
from rota.core.lifecycle.command_failures import start_failed
from rota.core.lifecycle.progress_report import progressed
from rota.core.lifecycle.states import Purpose, Trigger
from rota.core.lifecycle.transitions import Reaction, early_end, overrides_purpose
from rota.core.lifecycle.worker_exits import (
    LOST_EXIT_CODE,
    NOT_RETRIED,
    never_joined,
    reduce_worker_exits,
)
from rota.core.model.events import (
    Bug,
    JobCancelled,
    JobEdited,
    JobEvent,
    JobHeld,
    JobReleased,
    JobRemarked,
    JobResized,
    JobSubmitted,
    MembershipChanged,
    NewcomersMissing,
    ProgressReported,
    StartFailed,
    WorkersExited,
    WorkersHindered,
    WorkersLost,
    WorkerSlow,
    WorkersSilent,
    WorkersStarted,
)
from rota.core.model.job import (
    ActivePhase,
    Held,
    Job,
    JobSpec,
    Queued,
    Running,
    ServiceTime,
    Starting,
    Stopping,
)
from rota.core.model.units import format_bytes, format_seconds


def new_job(event: JobSubmitted, now: float, *, known: SpeedModel | None) -> Job:
    """A new job. `known` is the speed model that earlier jobs of its category measured."""
    return Job(
        id=event.job_id,
        spec=event.spec,
        submitted_s=now,
        phase=Held(now) if event.is_held else Queued(now),
        service=ServiceTime(as_of_s=now),
        speed=known or _first_guess(event.spec),
    )


def _first_guess(spec: JobSpec) -> SpeedModel:
    estimate = spec.estimate
    if estimate is None:
        return PRIOR
    epoch_s = estimate.seconds / spec.epochs
    return estimated(
        epoch_s, workers=estimate.workers, speedups=estimate.speedups or PRIOR_SPEEDUPS
    )


def react(job: Job, event: JobEvent, *, now: float) -> Reaction:
    """The reaction of a job to an event: the changed job, and the trigger if its state may
    change."""
    match event:
        case JobCancelled() | JobHeld() | JobReleased():
            return _user_request(job, event)
        case JobResized() | JobEdited():
            return _pinned(job, event) if isinstance(event, JobResized) else _edited(job, event)
        case _ if event.attempt != job.attempt or not isinstance(job.phase, ActivePhase):
            return Reaction(job, None)
        case WorkersStarted() | StartFailed():
            return _started(job, event, now=now)
        case WorkersExited() | WorkersLost():
            return reduce_worker_exits(job, event, codes=_codes(event), now=now)
        case NewcomersMissing():
            return never_joined(job, event.workers, now=now)
        case WorkersHindered() | WorkersSilent() | WorkerSlow() | JobRemarked() | Bug():
            return _remarked(job, event)
        case MembershipChanged():
            return _membership_changed(job, event)
        case ProgressReported():
            after = progressed(job, event, now=now)
            return Reaction(after, Trigger.PROGRESS) if after else Reaction(job, None)
        case _:
            assert_never(event)


def _codes(event: WorkersExited | WorkersLost) -> Mapping[int, int]:
    if isinstance(event, WorkersLost):
        return dict.fromkeys(event.workers, LOST_EXIT_CODE)
    return event.codes


def timed_out(job: Job) -> Reaction | None:
    """The reaction when the job's timer is due: a stop request timed out, or the time limit is
    reached."""
    match job.phase:
        case Stopping(purpose=purpose):
            reason = f"did not stop within {job.spec.grace_s:g} s of the stop request"
            return Reaction(job, Trigger.INSIST, reason, purpose)
        case Starting() | Running():
            reason = f"reached its time limit of {job.spec.time_limit_s:g} s"
            if job.spec.retries > job.failures:
                reason += f"; {NOT_RETRIED}a time limit is no failure of the program"
            return Reaction(job, Trigger.STOP, reason, Purpose.FAIL)
        case _:
            return None


def _user_request(job: Job, request: JobCancelled | JobHeld | JobReleased) -> Reaction:
    """Cancel, hold or release. A job that is already stopping follows only a request that changes
    its end."""
    match request:
        case JobCancelled():
            trigger, action, purpose = Trigger.CANCEL, "cancelled", Purpose.CANCEL
        case JobHeld():
            trigger, action, purpose = Trigger.HOLD, "held", Purpose.HOLD
        case JobReleased():
            trigger, action, purpose = Trigger.RELEASE, "released", Purpose.PREEMPT
    if isinstance(job.phase, Stopping) and not overrides_purpose(job.phase, purpose):
        return Reaction(job, None)
    return Reaction(job, trigger, request.reason or _by(action, request.actor), purpose)


EDIT_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "name": str,
    "priority": str,
    "time_limit_s": lambda seconds: format_seconds(seconds) if seconds < math.inf else "none",
    "retries": str,
    "retry_on": lambda codes: ", ".join(map(str, sorted(codes))) or "every failure",
    "gpu_types": lambda types: ", ".join(types) or "any",
    "cpus": lambda count: f"{count:g}" if count else "no limit",
    "memory_bytes": lambda count: format_bytes(count) if count else "no limit",
}
"""The fields of an edit, and how the job's history shows their values."""
HELD_RESOURCES = ("gpu_types", "cpus", "memory_bytes")
"""What a job with slots has booked, so that only a job without slots can change it."""


def _edited(job: Job, edit: JobEdited) -> Reaction:
    """Change the spec; the next round uses it. The history names the old values too."""
    wanted = {name: getattr(edit, name) for name in EDIT_TEXTS}
    new = {
        name: value
        for name, value in wanted.items()
        if value not in (None, getattr(job.spec, name))
        and not (job.is_active and name in HELD_RESOURCES)
    }
    if not new:
        return Reaction(job, None)
    changes = [
        f"{name.removesuffix('_s').removesuffix('_bytes').replace('_', ' ')} set to"
        f" {EDIT_TEXTS[name](value)} (was {EDIT_TEXTS[name](getattr(job.spec, name))})"
        for name, value in new.items()
    ]
    spec = replace(job.spec, **new)
    return Reaction(replace(job, spec=spec), None, _by(", ".join(changes), edit.actor))


def _pinned(job: Job, request: JobResized) -> Reaction:
    """Pin the job's size; the next round applies it. The caller has already rejected sizes outside
    the job's range."""
    workers, spec = request.workers, job.spec
    if workers is not None and not spec.min_workers <= workers <= spec.max_workers:
        return Reaction(job, None)
    action = "size left to the policy" if workers is None else f"resized to {spec.gpus_of(workers)}"
    return Reaction(replace(job, pinned_workers=workers), None, _by(action, request.actor))


def _by(action: str, actor: str) -> str:
    return f"{action} by {actor}" if actor else action


def _started(job: Job, event: WorkersStarted | StartFailed, *, now: float) -> Reaction:
    if isinstance(event, StartFailed):
        return start_failed(job, event, now=now)
    if not isinstance(job.phase, Starting):
        return Reaction(job, Trigger.STARTED)
    started = job.phase.started | event.workers.intersection(job.numbers)
    job = replace(job, phase=replace(job.phase, started=started))
    is_complete = len(started) == len(job.allocation)
    return Reaction(job, Trigger.STARTED if is_complete else None)


def _remarked(
    job: Job,
    event: WorkersHindered | WorkersSilent | WorkerSlow | JobRemarked | Bug,
) -> Reaction:
    """A note for the job's history that leads to no other state."""
    if isinstance(event, WorkersSilent | WorkerSlow | Bug):
        return Reaction(job, None)  # The job table kills or moves the workers, or holds the job.
    if isinstance(event, JobRemarked):
        return Reaction(job, None, event.reason)
    reason = f"cannot start: {event.reason}"
    if isinstance(job.phase, Starting):
        if job.phase.hindrance == reason:
            return Reaction(job, None)  # Recorded once for all workers.
        job = replace(job, phase=replace(job.phase, hindrance=reason))
    return Reaction(job, None, reason)


def _membership_changed(job: Job, event: MembershipChanged) -> Reaction:
    phase = job.phase
    if not isinstance(phase, Running) or not phase.joining or event.generation != job.generation:
        return Reaction(job, None)
    job = replace(job, resize_s=_measured(event.pause_s, job.resize_s))
    if phase.exits.keys() >= set(phase.joining_numbers):
        # The exits of all members arrived before the report that they had joined.
        return Reaction(job, Trigger.FINISHED, early_end(job))
    return Reaction(job, Trigger.RESIZED)


def _measured(pause_s: float | None, before_s: float | None) -> float | None:
    return pause_s if pause_s is not None and 0 <= pause_s < math.inf else before_s
