"""When workers die, and their job can change its members while it runs: it goes on without them.

A worker dies by a signal or with its node. The others form the next generation, as long as they
are enough and one of them holds the state of the work: whoever is only on the way has none, unless
all move and those who leave have handed it over. Whoever leaves anyway is not missed. A newcomer
that fails, however it does, failed to join and no more. A live worker that stopped unasked has lost
the others: nobody told it who goes on, because the daemon was away.
Pure functions of one job, called by `exits`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.core.growth import capped
from rota.core.model import Job, Mode, Running
from rota.core.phases import LOST_SOON_S
from rota.core.reaction import LOST, STOPPED, Reaction, early_end, is_killed
from rota.core.states import Trigger

DEATHS_MAX = 3
TOGETHER_S = 15.0
"""Deaths this close to each other have one cause; and so has the failure of an agent that lost a
peer a moment ago."""


def died(job: Job, news: Mapping[int, int], *, now: float) -> frozenset[int]:
    """Those of the workers that ended which died, or never joined. A worker that fails by itself
    fails the job, and then nobody is."""
    phase = job.phase
    if not isinstance(phase, Running) or not job.spec.mode.resizes_in_place:
        return frozenset()
    is_struck = any(is_killed(code) for code in news.values())
    is_struck |= now - job.died_at_s <= TOGETHER_S
    falls_with_peers = is_struck and job.spec.mode is Mode.TORCHRUN
    bad = {number: code for number, code in news.items() if code != 0}
    has_given_up = STOPPED if job.spec.mode is Mode.LIVE else None
    is_own_failure = any(
        number in phase.numbers
        and not (is_killed(code) or code == has_given_up or falls_with_peers)
        for number, code in bad.items()
    )
    return frozenset() if is_own_failure else frozenset(bad)


def outlived(job: Job, dead: frozenset[int], *, news: Mapping[int, int], now: float) -> Reaction:
    """What becomes of a job that `dead` are gone from. Without a trigger: it cannot go on."""
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
    keepers = (staying or set(phase.numbers)) - dead
    is_ending = bool(missed) and not exits.keys().isdisjoint(keepers)
    counting = [news[number] for number in dead.intersection(next_numbers)]
    job = _counted(job, counting, now=now)
    is_cursed = job.deaths >= DEATHS_MAX
    if is_cursed or is_ending or not keepers or len(left) < job.spec.min_workers:
        return Reaction(job, None)
    if any(number not in phase.numbers and not is_killed(news[number]) for number in dead):
        # Whatever kept it from joining would keep the next one, too.
        job = capped(job, len(left), why=f"{_who(dead)} could not join", now=now)
    job = replace(job, phase=replace(phase, exits=exits))
    return Reaction(job, Trigger.OUTLIVED, f"goes on without {_who(dead)}", gone=dead)


def never_joined(job: Job, workers: frozenset[int], *, now: float) -> Reaction:
    """Newcomers ended with 0, and those who train have not met them: they failed to join."""
    phase = job.phase
    if not isinstance(phase, Running):
        return Reaction(job, None)
    missing = workers.intersection(phase.joining_numbers).difference(phase.numbers)
    missing = frozenset(number for number in missing if phase.exits.get(number) == 0)
    if not missing:
        return Reaction(job, None)
    reaction = outlived(job, missing, news=dict.fromkeys(missing, 0), now=now)
    return replace(reaction, reason=f"{reaction.reason}; ended before the others had met it")


def _counted(job: Job, codes: Sequence[int], *, now: float) -> Job:
    """The job with its row of deaths. To be lost is nobody's fault. Where nobody reports progress,
    to stand for a while counts as some."""
    if now - job.died_at_s <= TOGETHER_S:
        return job
    is_lost = all(code == LOST for code in codes)
    is_mute = job.reported_in < job.attempt
    has_stood = is_mute and now - job.died_at_s >= LOST_SOON_S
    n_before = 0 if has_stood else job.deaths
    return replace(job, died_at_s=now, deaths=n_before + (not is_lost))


def _who(dead: frozenset[int]) -> str:
    noun = "worker" if len(dead) == 1 else "workers"
    return f"{noun} {', '.join(map(str, sorted(dead)))}"
