"""What it means for a job that some of its workers ended: it goes on, stops, ends, or has ended.

Pure functions of one job, called by `life`. The first word about each worker counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rota.core.deaths import DEATHS_MAX, died, outlived
from rota.core.events import WorkersExited, WorkersLost
from rota.core.model import HoldsGpus, Job, Mode, Purpose, Running, Stopping
from rota.core.reaction import FIRST_SIGNAL_CODE, LOST, Reaction, early_end, is_killed
from rota.core.refusals import refused
from rota.core.states import Trigger

IDLE_ATTEMPTS_MAX = 3
RETRIES_OF_NOBODYS_MISTAKE = 2
"""A failure that is nobody's mistake is tried again this often, even if the job asks for less."""


def gone(
    job: Job, event: WorkersExited | WorkersLost, *, codes: Mapping[int, int], now: float
) -> Reaction:
    phase = job.phase
    assert isinstance(phase, HoldsGpus)
    numbers = job.numbers
    news = {n: code for n, code in codes.items() if n in numbers and n not in phase.exits}
    if not news:
        return Reaction(job, None)
    exits = {**phase.exits, **news}
    if isinstance(event, WorkersLost) and event.is_refused:
        job = refused(job, event, now=now)
    job = replace(job, phase=replace(phase, exits=exits))
    is_all = len(exits) == len(numbers)
    if isinstance(job.phase, Stopping):
        if is_all:
            return _stopped(job, job.phase, last=_said_by(news, event))
        return _left_behind(job, job.phase, news=news, now=now)
    dead = died(job, news, now=now)
    if dead:
        reaction = outlived(job, dead, news=news, now=now)
        if reaction.trigger is not None:
            return replace(reaction, reason=_joined(reaction.reason, _cause(event, news)))
        job = reaction.job
        # The others stop at their last step and wait for better times: nothing has failed.
        are_others_left = job.spec.mode is Mode.LIVE and not is_all
        exits.update((n, LOST) for n in dead if are_others_left or not is_killed(exits[n]))
    return _ended(job, exits, event=event, is_all=is_all)


def _ended(
    job: Job, exits: Mapping[int, int], *, event: WorkersExited | WorkersLost, is_all: bool
) -> Reaction:
    """Some or all workers of a job that was not asked to stop are gone, and are missed."""
    worst = _worst(exits)
    if worst == 0:
        if is_all:
            reason = _joined(early_end(job), event.reason)
            return Reaction(job, Trigger.FINISHED, reason)
        if _only_newcomers_are_left(job, exits):
            return Reaction(job, Trigger.STOP, "the others have finished", Purpose.FINISH)
        return Reaction(job, None)
    # Until now all exits were 0, or the job would be stopping: these words are about the worst.
    purpose, reason = _verdict(job, worst, event=event)
    if not is_all:
        return Reaction(job, Trigger.WORKER_LOST, reason, purpose)
    trigger = Trigger.GAVE_UP if purpose is Purpose.FAIL else Trigger.BROKE_DOWN
    return Reaction(job, trigger, reason, purpose)


def _only_newcomers_are_left(job: Job, exits: Mapping[int, int]) -> bool:
    """Whether the work is done although some are still on their way to it. Where all are replaced,
    the old ones may have left after the switch, and only the epochs tell."""
    phase = job.phase
    if not isinstance(phase, Running) or not phase.joining:
        return False
    staying = set(phase.numbers).intersection(phase.joining_numbers)
    if not staying and job.epochs_done < job.epochs:
        return False
    has_newcomers = any(n not in phase.numbers and n not in exits for n in phase.joining_numbers)
    return has_newcomers and exits.keys() >= (staying or set(phase.numbers))


def _cause(event: WorkersExited | WorkersLost, news: Mapping[int, int]) -> str:
    if isinstance(event, WorkersLost):
        return f"lost: {event.reason}" if event.reason else "lost with its node"
    codes = sorted({code for code in news.values() if code != 0})
    return _joined(f"exit code {', '.join(map(str, codes))}", event.finding, event.reason)


def _left_behind(job: Job, phase: Stopping, *, news: Mapping[int, int], now: float) -> Reaction:
    """Who was asked to stop and waits for a worker that was killed will never come to a safe
    point, unless it can do without others."""
    can_still_save = job.spec.mode is Mode.LIVE or not any(map(is_killed, news.values()))
    if phase.insists_at_s is None or can_still_save:
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


def _verdict(job: Job, code: int, *, event: WorkersExited | WorkersLost) -> tuple[Purpose, str]:
    """Whether a broken attempt is tried again, and in which words."""
    if isinstance(event, WorkersLost):
        return Purpose.LOST, f"lost: {event.reason}" if event.reason else "lost with its node"
    if code == LOST:
        what = _cause(event, event.codes)
        if job.deaths >= DEATHS_MAX:
            return Purpose.FAIL, f"{what}; {DEATHS_MAX} deaths in a row without progress"
        return Purpose.LOST, f"too few workers are left: {what}"
    spec, n_retries = job.spec, job.spec.retries
    said = _joined(event.finding, event.reason)
    what, comma = (f"exit code {code}: {said}", ";") if said else (f"exit code {code}", ",")
    if job.deaths >= DEATHS_MAX:
        return Purpose.FAIL, f"{what}; {DEATHS_MAX} deaths in a row without progress"
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
        case Purpose.FINISH:
            return Reaction(job, Trigger.FINISHED, early_end(job))
        case Purpose.HOLD:
            trigger = Trigger.STOPPED_TO_HOLD
        case Purpose.CANCEL:
            trigger = Trigger.STOPPED_TO_CANCEL
        case Purpose.FAIL:
            trigger = Trigger.GAVE_UP
        case Purpose.RESIZE | Purpose.PREEMPT | Purpose.RETRY | Purpose.LOST:
            trigger = Trigger.STOPPED
    return Reaction(job, trigger, _joined(phase.reason, last), phase.purpose)
