"""The workers of one attempt of a live job: what they said, and what they are told."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rota.core.model import Job, Running, Starting
from rota.daemon import generations
from rota.daemon.generations import NOBODY, Said, Wanted
from rota.daemon.reports import Told
from rota_trainer.messages import Switch
from rota_trainer.reporting import BACKOFF_MAX_S

MUTE_S = 120.0
"""A program that has not spoken of generations by then never will."""


@dataclass(slots=True)
class Crew:
    wanted: Wanted
    since_s: float
    """When this daemon learnt of it."""
    said: dict[int, Said] = field(default_factory=dict[int, Said])
    switch: Switch | None = None
    """The generation that is wanted, once it can be given."""
    refused: dict[int, str] = field(default_factory=dict[int, str])
    changed_at_s: float = -math.inf
    """When somebody last said that it is in another generation."""
    _members: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Of the generations that were given."""
    _interim: Switch | None = None
    """Those who trained, without newcomers that are not ready, after a death among them."""
    _spare: int | None = None
    """The number of a generation that was wanted before this one, and never given to anybody."""
    _is_ordered_here: bool = False
    """Whether the one that is wanted was ordered in the life of this daemon."""
    _came_at_s: float | None = None
    _ended_at_s: dict[int, float] = field(default_factory=dict[int, float])
    """When it was seen first that a newcomer had ended with 0."""
    _is_remarked: bool = False
    _ended: dict[int, float] = field(default_factory=dict[int, float])
    """When it was told that a worker is to be ended."""

    # -- what is heard --------------------------------------------------------------------------

    def want(self, wanted: Wanted) -> None:
        is_unused = self.switch is None and self._is_ordered_here
        self._spare = self.wanted.generation if is_unused else None
        self.wanted, self._is_ordered_here = wanted, True
        self.switch = self._interim = self._came_at_s = None

    def hear(self, told: Told, *, now: float) -> None:
        before = self.said.get(told.worker, Said())
        if told.generation != before.generation:
            self.changed_at_s = now
        said = Said(
            generation=told.generation,
            address=told.address,
            identity=told.identity,
            step=told.global_step,
            pause_s=told.pause_s,
            heard_at_s=now,
            moved_at_s=before.moved_at_s,
        )
        self.said[told.worker] = (
            replace(said, moved_at_s=now) if said.got_on_since(before) else said
        )

    def excuse(self, now: float) -> None:
        """All were as good as heard of, and got on."""
        for number, said in self.said.items():
            self.said[number] = replace(said, heard_at_s=now, moved_at_s=now)
        self.since_s = now

    # -- the generation -------------------------------------------------------------------------

    def gather(self, job: Job) -> bool:
        """Give the generation that is wanted, if it can be. Whether there is something new."""
        refused = generations.refusals(self.wanted, self.said)
        is_new = bool(refused.keys() - self.refused.keys())
        self.refused |= refused
        if self.switch is None:
            is_broken = self._is_broken(job)
            self.switch = generations.switch_to(self.wanted, self.said, is_broken=is_broken)
            if self.switch is not None:
                self._members[self.wanted.generation] = self.wanted.numbers
                is_new = True
            elif is_broken and self._interim is None:
                is_new |= self._go_on_without_newcomers(job)
        return is_new

    def _go_on_without_newcomers(self, job: Job) -> bool:
        """Whether those who trained can do so at once, in a generation whose number is free."""
        here = set(job.numbers).difference(_exits(job))
        trained = {n for n, said in self.said.items() if said.generation > NOBODY}
        left = tuple(n for n in job.numbers if n in here & trained)
        if self._spare is None or len(left) < job.spec.min_workers:
            return False
        interim = Wanted(self.wanted.attempt, self._spare, left)
        self._interim = generations.switch_to(interim, self.said, is_broken=True)
        self._members[interim.generation] = left
        return self._interim is not None

    def orders(self, worker: int) -> tuple[Switch | None, str]:
        said, switch = self.said.get(worker), self.switch
        if said is None:
            return None, ""
        if switch is None and said.generation > NOBODY:
            switch = self._interim
        is_news = switch is not None and switch.generation > said.generation
        return switch if is_news else None, self.refused.get(worker, "")

    def has_come_about(self, job: Job) -> bool:
        finished = [n for n, code in _exits(job).items() if code == 0]
        return generations.has_come_about(self.wanted, self.said, finished=finished)

    def pause_s(self, job: Job) -> float | None:
        """Of those that are in no change at the moment, all are newcomers."""
        phase = job.phase
        before = phase.numbers if isinstance(phase, Running) and phase.joining else ()
        return generations.pause_s(self.wanted, self.said, before=before)

    def _is_broken(self, job: Job) -> bool:
        """Whether somebody is gone out of the generation that trains. One that was given before
        this daemon was started may be: to break off its step costs little."""
        standing = generations.newest(self.said)
        if standing == NOBODY:
            return False
        members = self._members.get(standing)
        here = set(job.numbers).difference(_exits(job))
        return members is None or not here.issuperset(members)

    # -- those who are not there -----------------------------------------------------------------

    def missing(self, job: Job, *, now: float) -> frozenset[int]:
        """Newcomers that ended with 0 and joined nobody: those who train said so after that end.
        Had they joined it and finished, the others would have joined it with them."""
        phase = job.phase
        if not isinstance(phase, Running):
            return frozenset()
        ended = {n for n, code in phase.exits.items() if code == 0}.difference(phase.numbers)
        for number in ended:
            self._ended_at_s.setdefault(number, now)
        here = [n for n in phase.numbers if n not in phase.exits]
        heard = [self.said.get(n) for n in here]
        if not here:
            return frozenset()
        return frozenset(
            number
            for number in ended.intersection(phase.joining_numbers)
            if not any(self._may_have_met(number, said) for said in heard)
        )

    def _may_have_met(self, newcomer: int, said: Said | None) -> bool:
        """By what a worker said since that ended. Who never said anything meets nobody."""
        if said is None:
            return False
        is_in = said.generation >= self.wanted.generation
        return is_in or said.heard_at_s <= self._ended_at_s[newcomer]

    def is_mute(self, job: Job, *, now: float) -> bool:
        """Whether it is time to say that nobody spoke of generations, which is once: not of a job
        that was there before this daemon."""
        phase = job.phase
        if self._is_remarked or not isinstance(phase, Running):
            return False
        due_s = phase.since_s + MUTE_S
        self._is_remarked = not self.said and self.since_s <= due_s <= now
        return self._is_remarked

    # -- those who hold up the others -----------------------------------------------------------

    def faults(self, job: Job, *, now: float, heartbeat_s: float) -> dict[str, frozenset[int]]:
        """In words -> the workers that are to be ended for it."""
        here = [n for n in job.numbers if n not in _exits(job)]
        stuck = generations.silent(self._present(job, here), now=now, heartbeat_s=heartbeat_s)
        found = {
            f"said nothing for {heartbeat_s:g} s, and the others cannot go on": stuck,
            "did not leave in time": self._overdue(job, here, now=now),
        }
        new = {why: self._new(who, now=now, again_s=heartbeat_s) for why, who in found.items()}
        return {why: who for why, who in new.items() if who}

    def _present(self, job: Job, here: Iterable[int]) -> dict[int, Said]:
        """One who trained before this daemon was started and has not been heard of since has yet
        to find out that there is somebody to report to."""
        found = {n: self.said[n] for n in here if n in self.said}
        if generations.newest(found) > NOBODY and isinstance(job.phase, Running):
            unheard = Said(heard_at_s=self.since_s + BACKOFF_MAX_S)
            found |= {n: unheard for n in job.phase.numbers if n in here and n not in found}
        return found

    def _overdue(self, job: Job, here: Iterable[int], *, now: float) -> frozenset[int]:
        """Leavers that are still there although the others have long gone on."""
        if not self.has_come_about(job):
            return frozenset()
        if self._came_at_s is None:
            self._came_at_s = now
        is_late = now - self._came_at_s > job.spec.grace_s
        return frozenset(here).difference(self.wanted.numbers) if is_late else frozenset()

    def _new(self, workers: frozenset[int], *, now: float, again_s: float) -> frozenset[int]:
        """Without those of whom it was told a moment ago."""
        found = frozenset(n for n in workers if now - self._ended.get(n, -again_s) >= again_s)
        self._ended |= dict.fromkeys(found, now)
        return found


def _exits(job: Job) -> dict[int, int]:
    phase = job.phase
    return dict(phase.exits) if isinstance(phase, Running | Starting) else {}
