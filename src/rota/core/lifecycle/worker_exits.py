"""What the end of some workers means for their job: continue, stop, retry, fail or succeed.

Pure functions of one job, called by `reducer`. For each worker, only the first reported exit
counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.core.lifecycle.node_refusals import with_refusal
from rota.core.lifecycle.size_caps import capped
from rota.core.lifecycle.states import Purpose, Trigger
from rota.core.lifecycle.transitions import EARLY_LOSS_S, Reaction, early_end
from rota.core.model.events import WorkersExited, WorkersLost
from rota.core.model.job import ActivePhase, Job, Mode, Running, Stopping

LOST_EXIT_CODE = -1
"""Stands for the exit code of a worker that was lost."""
FIRST_SIGNAL_CODE = 128
SAVED_EXIT_CODE = 75
"""The exit code of a program that uses the training library, has saved its state, and wants to run
again."""
DEATHS_MAX = 3
SAME_CAUSE_WINDOW_S = 15.0
"""Worker deaths this close together count as one. A torchrun agent that fails this soon after a
peer died counts as a victim."""
IDLE_ATTEMPTS_MAX = 3
NOT_RETRIED = "not retried: "
"""Comes before the reason why a failed job did not use a retry that it had left."""
MIN_TRANSIENT_RETRIES = 2
"""Retries of a failure with an external cause, even if the job requests fewer."""


def reduce_worker_exits(
    job: Job, event: WorkersExited | WorkersLost, *, codes: Mapping[int, int], now: float
) -> Reaction:
    """The reaction of a job to the exit or loss of some of its workers."""
    phase = job.phase
    assert isinstance(phase, ActivePhase)
    numbers = job.numbers
    news = {n: code for n, code in codes.items() if n in numbers and n not in phase.exits}
    if not news:
        return Reaction(job, None)
    exits = {**phase.exits, **news}
    if isinstance(event, WorkersLost) and event.is_refused:
        job = with_refusal(job, event, now=now)
    ended_s = max(job.workers_ended_s, now - event.ago_s)
    job = replace(job, phase=replace(phase, exits=exits), workers_ended_s=ended_s)
    is_all = len(exits) == len(numbers)
    if isinstance(job.phase, Stopping):
        if is_all:
            return _stopped(job, job.phase, last=_engine_reason(news, event))
        return _insist_if_peer_killed(job, job.phase, news=news, now=now)
    dead = dead_workers(job, news, now=now)
    if dead:
        reaction = continue_without(job, dead, news=news, now=now)
        if reaction.trigger is not None:
            return replace(reaction, reason=_joined(reaction.reason, _cause(event, news)))
        job = reaction.job
        # The other workers stop at their last step; the job did not fail and is requeued.
        are_others_left = job.spec.mode is Mode.LIVE and not is_all
        exits.update(
            (n, LOST_EXIT_CODE) for n in dead if are_others_left or not is_killed(exits[n])
        )
    return _ended(job, exits, event=event, is_all=is_all)


def _ended(
    job: Job, exits: Mapping[int, int], *, event: WorkersExited | WorkersLost, is_all: bool
) -> Reaction:
    """Some or all workers of a job are gone without a stop request, and the job needs them."""
    worst = _worst(exits)
    if worst == 0:
        if is_all:
            reason = _joined(early_end(job), event.reason)
            return Reaction(job, Trigger.FINISHED, reason)
        if _only_newcomers_are_left(job, exits):
            return Reaction(job, Trigger.STOP, "all other workers finished", Purpose.FINISH)
        return Reaction(job, None)
    # All earlier exits were 0, or the job would be stopping: the event describes the worst exit.
    purpose, reason = _retry_decision(job, worst, event=event)
    if not is_all:
        return Reaction(job, Trigger.WORKER_LOST, reason, purpose)
    trigger = Trigger.GAVE_UP if purpose is Purpose.FAIL else Trigger.BROKE_DOWN
    return Reaction(job, trigger, reason, purpose)


def _only_newcomers_are_left(job: Job, exits: Mapping[int, int]) -> bool:
    """Whether the work is done although some new workers have not joined yet. If the change
    replaces all workers, the old ones may have left after the switch, so only the epochs show
    whether the work is done."""
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
        return f"worker lost: {event.reason}" if event.reason else "worker lost with its node"
    codes = sorted({code for code in news.values() if code != 0})
    return _joined(f"exit code {', '.join(map(str, codes))}", event.finding, event.reason)


def _insist_if_peer_killed(
    job: Job, phase: Stopping, *, news: Mapping[int, int], now: float
) -> Reaction:
    """Stop the workers now if a worker was killed while the others were asked to stop: they would
    wait for it and never reach a safe point, unless the job is live."""
    can_still_save = job.spec.mode is Mode.LIVE or not any(map(is_killed, news.values()))
    if phase.insists_at_s is None or can_still_save:
        return Reaction(job, None)
    insisting = replace(job, phase=replace(phase, insists_at_s=now))
    return Reaction(insisting, Trigger.INSIST, "a worker was lost during the stop", phase.purpose)


def _worst(exits: Mapping[int, int]) -> int:
    """The exit code that explains the others: a lost worker, else a worker's own failure, else a
    signal."""
    codes = set(exits.values())
    own = [code for code in codes if 0 < code < FIRST_SIGNAL_CODE]
    if LOST_EXIT_CODE in codes:
        return LOST_EXIT_CODE
    return min(own) if own else max(codes)


def _retry_decision(
    job: Job, code: int, *, event: WorkersExited | WorkersLost
) -> tuple[Purpose, str]:
    """Whether to retry a failed attempt, and the reason text."""
    if isinstance(event, WorkersLost):
        return (
            Purpose.LOST,
            f"worker lost: {event.reason}" if event.reason else "worker lost with its node",
        )
    if code == LOST_EXIT_CODE:
        return _decision_about_deaths(job, _cause(event, event.codes))
    details = _joined(event.finding, event.reason)
    what, comma = (f"exit code {code}: {details}", ";") if details else (f"exit code {code}", ",")
    if job.deaths >= DEATHS_MAX:
        return Purpose.FAIL, f"{what}; {DEATHS_MAX} worker deaths in a row without progress"
    n_retries = job.spec.retries
    if event.is_retriable:
        n_retries = max(n_retries, MIN_TRANSIENT_RETRIES)
    if job.failures >= n_retries:
        return Purpose.FAIL, f"{what}{comma} no retries left" if n_retries else what
    if why := _unused_retry(job, code, is_retriable=event.is_retriable):
        return Purpose.FAIL, f"{what}; {NOT_RETRIED}{why}"
    return Purpose.RETRY, f"{what}{comma} will be retried"


def _unused_retry(job: Job, code: int, *, is_retriable: bool) -> str:
    """Why a job that has retries left is not retried; empty if it is retried. Only a job that
    reports its progress is known to make none."""
    retry_on = job.spec.retry_on
    if retry_on and code not in retry_on and not is_retriable:
        return f"retry_on has only {', '.join(map(str, sorted(retry_on)))}"
    is_idle = job.epochs_saved <= job.epochs_done_at_start
    is_measured = is_retriable or job.reported_in > 0
    if is_idle and is_measured and job.idle_attempts + 1 >= IDLE_ATTEMPTS_MAX:
        return f"{IDLE_ATTEMPTS_MAX} attempts in a row made no progress"
    return ""


def _decision_about_deaths(job: Job, what: str) -> tuple[Purpose, str]:
    """Whether to retry an attempt that cannot continue without its dead workers."""
    if job.deaths >= DEATHS_MAX:
        return Purpose.FAIL, f"{what}; {DEATHS_MAX} worker deaths in a row without progress"
    return Purpose.LOST, f"too few workers are left: {what}"


def _joined(*words: str) -> str:
    return "; ".join(each for each in words if each)


def _engine_reason(news: Mapping[int, int], event: WorkersExited | WorkersLost) -> str:
    """The engine's explanation for the workers that ended last. Findings in their logs do not
    count, because a stopped program often looks like a failed one."""
    if not event.reason:
        return ""
    noun = "worker" if len(news) == 1 else "workers"
    return f"{noun} {', '.join(str(number) for number in sorted(news))}: {event.reason}"


def _stopped(job: Job, phase: Stopping, *, last: str) -> Reaction:
    """All workers are gone after a stop request: their exit codes do not count. The engine's
    explanation for the last of them (for example, killed) goes into the history."""
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


def dead_workers(job: Job, news: Mapping[int, int], *, now: float) -> frozenset[int]:
    """The ended workers that died or never joined. Empty if a member failed by itself, because that
    fails the whole job."""
    phase = job.phase
    if not isinstance(phase, Running) or not job.spec.mode.resizes_in_place:
        return frozenset()
    has_killed_peer = any(is_killed(code) for code in news.values())
    has_killed_peer |= now - job.died_at_s <= SAME_CAUSE_WINDOW_S
    falls_with_peers = has_killed_peer and job.spec.mode is Mode.TORCHRUN
    bad = {number: code for number, code in news.items() if code != 0}
    has_given_up = SAVED_EXIT_CODE if job.spec.mode is Mode.LIVE else None
    is_own_failure = any(
        number in phase.numbers
        and not (is_killed(code) or code == has_given_up or falls_with_peers)
        for number, code in bad.items()
    )
    return frozenset() if is_own_failure else frozenset(bad)


def continue_without(
    job: Job, dead: frozenset[int], *, news: Mapping[int, int], now: float
) -> Reaction:
    """Continue without the dead workers. The reaction has no trigger if the job cannot continue."""
    phase = job.phase
    assert isinstance(phase, Running)
    exits = {number: code for number, code in phase.exits.items() if number not in dead}
    next_numbers = phase.joining_numbers or phase.numbers
    staying = set(next_numbers).intersection(phase.numbers)
    missed = dead & staying
    rest = [number for number in job.numbers if number not in dead]
    is_done = bool(staying) or job.epochs_done >= job.epochs
    if is_done and rest and not missed and all(number in exits for number in rest):
        return Reaction(job, Trigger.FINISHED, early_end(job))
    left = [number for number in next_numbers if number not in dead]
    survivors = (staying or set(phase.numbers)) - dead
    is_ending = bool(missed) and not exits.keys().isdisjoint(survivors)
    counting = [news[number] for number in dead.intersection(next_numbers)]
    if not _is_given_up(job, next_numbers, now=now):
        job = _count_deaths(job, counting, now=now)
    has_too_many_deaths = job.deaths >= DEATHS_MAX
    if (
        has_too_many_deaths
        or is_ending
        or not survivors
        or job.units_of(left) < job.spec.min_workers
    ):
        return Reaction(job, None)
    if any(number not in phase.numbers and not is_killed(news[number]) for number in dead):
        # The cause would also keep the next new worker from joining.
        job = capped(job, job.units_of(left), why=f"{_worker_names(dead)} could not join", now=now)
    job = replace(job, phase=replace(phase, exits=exits))
    return Reaction(job, Trigger.OUTLIVED, f"continues without {_worker_names(dead)}", gone=dead)


def _is_given_up(job: Job, next_numbers: Sequence[int], *, now: float) -> bool:
    """Whether rota itself gave up the next generation, because its start failed: the generation
    exceeds the cap that the failure set."""
    cap = job.cap
    return cap is not None and now < cap.until_s and job.units_of(next_numbers) > cap.workers


def never_joined(job: Job, workers: frozenset[int], *, now: float) -> Reaction:
    """New workers exited with 0 before they joined the training group: they failed to join."""
    phase = job.phase
    if not isinstance(phase, Running):
        return Reaction(job, None)
    missing = workers.intersection(phase.joining_numbers).difference(phase.numbers)
    missing = frozenset(number for number in missing if phase.exits.get(number) == 0)
    if not missing:
        return Reaction(job, None)
    reaction = continue_without(job, missing, news=dict.fromkeys(missing, 0), now=now)
    they = "it" if len(missing) == 1 else "they"
    what = f"exited before {they} joined the others"
    if reaction.trigger is not None:
        return replace(reaction, reason=_joined(reaction.reason, what))
    purpose, reason = _decision_about_deaths(reaction.job, f"{_worker_names(missing)} {what}")
    return Reaction(reaction.job, Trigger.WORKER_LOST, reason, purpose)


def _count_deaths(job: Job, codes: Sequence[int], *, now: float) -> Job:
    """The job with its count of worker deaths. Lost workers do not count. In a job that reports no
    progress, a period without deaths counts as progress."""
    if now - job.died_at_s <= SAME_CAUSE_WINDOW_S:
        return job
    is_lost = all(code == LOST_EXIT_CODE for code in codes)
    reports_nothing = job.reported_in < job.attempt
    was_stable = reports_nothing and now - job.died_at_s >= EARLY_LOSS_S
    n_before = 0 if was_stable else job.deaths
    return replace(job, died_at_s=now, deaths=n_before + (not is_lost))


def _worker_names(dead: frozenset[int]) -> str:
    noun = "worker" if len(dead) == 1 else "workers"
    return f"{noun} {', '.join(map(str, sorted(dead)))}"


def is_killed(code: int) -> bool:
    """Whether the worker was killed by a signal or lost, rather than failing by itself."""
    return code == LOST_EXIT_CODE or code >= FIRST_SIGNAL_CODE
