"""The workers of one attempt of a live job: their last reports, and the orders for them.

Applies `generation_rules` over time: when a generation is sent to the workers, when it has formed,
and which workers must be killed because they block the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rota.core.model.job import Job, Running, Starting
from rota.daemon.elastic import generation_rules
from rota.daemon.elastic.generation_rules import NO_GENERATION, DesiredGeneration, MemberState
from rota.daemon.training.report_parser import WorkerReport
from rota_trainer.reporting.loop import BACKOFF_MAX_S
from rota_trainer.reporting.messages import Switch

NOT_ELASTIC_AFTER_S = 120.0
"""A program that has not reported a generation by then does not use live training."""


@dataclass(slots=True)
class WorkerGroup:
    wanted: DesiredGeneration
    since_s: float
    """When this daemon learned of the attempt."""
    states: dict[int, MemberState] = field(default_factory=dict[int, MemberState])
    switch: Switch | None = None
    """The order for the wanted generation; None until all members are ready."""
    refused: dict[int, str] = field(default_factory=dict[int, str])
    changed_at_s: float = -math.inf
    """When a worker last reported a new generation."""
    _members: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """The members of the generations that were sent to the workers."""
    _interim: Switch | None = None
    """After the failure of a worker: a generation of the surviving members, without new workers
    that are not ready."""
    _spare: int | None = None
    """The number of a generation that was wanted before this one and never sent to a worker."""
    _is_ordered_here: bool = False
    """Whether the wanted generation was ordered since this daemon started."""
    _formed_at_s: float | None = None
    _ended_at_s: dict[int, float] = field(default_factory=dict[int, float])
    """When the exit with code 0 of a new worker was first seen."""
    _is_remarked: bool = False
    _ended: dict[int, float] = field(default_factory=dict[int, float])
    """When it was last reported that a worker must be killed."""

    # -- commands and reports -------------------------------------------------------------------

    def want(self, wanted: DesiredGeneration) -> None:
        is_unused = self.switch is None and self._is_ordered_here
        self._spare = self.wanted.generation if is_unused else None
        self.wanted, self._is_ordered_here = wanted, True
        self.switch = self._interim = self._formed_at_s = None

    def record_report(self, report: WorkerReport, *, now: float) -> None:
        before = self.states.get(report.worker, MemberState())
        if report.generation != before.generation:
            self.changed_at_s = now
        state = MemberState(
            generation=report.generation,
            address=report.address,
            identity=report.identity,
            step=report.global_step,
            pause_s=report.pause_s,
            heard_at_s=now,
            advanced_at_s=before.advanced_at_s,
        )
        self.states[report.worker] = (
            replace(state, advanced_at_s=now) if state.has_advanced_since(before) else state
        )

    def reset_heartbeats(self, now: float) -> None:
        """Treat all workers as if they had just reported progress."""
        for number, state in self.states.items():
            self.states[number] = replace(state, heard_at_s=now, advanced_at_s=now)
        self.since_s = now

    # -- the generation -------------------------------------------------------------------------

    def gather(self, job: Job) -> bool:
        """Prepare the order for the wanted generation if its members are ready; returns whether
        there are new orders."""
        refused = generation_rules.refusals(self.wanted, self.states)
        is_new = bool(refused.keys() - self.refused.keys())
        self.refused |= refused
        if self.switch is None:
            is_broken = self._is_broken(job)
            self.switch = generation_rules.switch_to(self.wanted, self.states, is_broken=is_broken)
            if self.switch is not None:
                self._members[self.wanted.generation] = self.wanted.numbers
                is_new = True
            elif is_broken and self._interim is None:
                is_new |= self._continue_without_newcomers(job)
        return is_new

    def _continue_without_newcomers(self, job: Job) -> bool:
        """Let the surviving members continue immediately, in a generation with the unused number;
        returns whether they can."""
        here = set(job.numbers).difference(_exits(job))
        trained = {n for n, state in self.states.items() if state.generation > NO_GENERATION}
        left = tuple(n for n in job.numbers if n in here & trained)
        if self._spare is None or job.units_of(left) < job.spec.min_workers:
            return False
        interim = DesiredGeneration(self.wanted.attempt, self._spare, left)
        self._interim = generation_rules.switch_to(interim, self.states, is_broken=True)
        self._members[interim.generation] = left
        return self._interim is not None

    def orders(self, worker: int) -> tuple[Switch | None, str]:
        state, switch = self.states.get(worker), self.switch
        if state is None:
            return None, ""
        if switch is None and state.generation > NO_GENERATION:
            switch = self._interim
        is_news = switch is not None and switch.generation > state.generation
        return switch if is_news else None, self.refused.get(worker, "")

    def has_formed(self, job: Job) -> bool:
        finished = [n for n, code in _exits(job).items() if code == 0]
        return generation_rules.has_formed(self.wanted, self.states, finished=finished)

    def pause_s(self, job: Job) -> float | None:
        """The interruption of training by the change. Without a change all workers are new, and
        there is none."""
        phase = job.phase
        before = phase.numbers if isinstance(phase, Running) and phase.joining else ()
        return generation_rules.pause_s(self.wanted, self.states, before=before)

    def _is_broken(self, job: Job) -> bool:
        """Whether a member of the training generation is gone. A generation that an earlier daemon
        process sent may be broken: its members are unknown, and aborting a step costs little."""
        standing = generation_rules.newest(self.states)
        if standing == NO_GENERATION:
            return False
        members = self._members.get(standing)
        here = set(job.numbers).difference(_exits(job))
        return members is None or not here.issuperset(members)

    # -- new workers that do not join -----------------------------------------------------------

    def missing(self, job: Job, *, now: float) -> frozenset[int]:
        """New workers that exited with 0 without joining: the others reported an older generation
        after that exit. If a new worker had joined and finished, the others would be in the new
        generation too."""
        phase = job.phase
        if not isinstance(phase, Running):
            return frozenset()
        ended = {n for n, code in phase.exits.items() if code == 0}.difference(phase.numbers)
        for number in ended:
            self._ended_at_s.setdefault(number, now)
        here = [n for n in phase.numbers if n not in phase.exits]
        states = [self.states.get(n) for n in here]
        if not here:
            return frozenset()
        return frozenset(
            number
            for number in ended.intersection(phase.joining_numbers)
            if not any(self._may_have_joined(number, state) for state in states)
        )

    def _may_have_joined(self, newcomer: int, state: MemberState | None) -> bool:
        """Whether this state does not exclude that its worker and the new worker have joined."""
        if state is None:
            return False
        is_in = state.generation >= self.wanted.generation
        return is_in or state.heard_at_s <= self._ended_at_s[newcomer]

    def is_not_elastic(self, job: Job, *, now: float) -> bool:
        """Whether to remark now that no worker has reported a generation. True once per attempt,
        and never for a job that started before this daemon."""
        phase = job.phase
        if self._is_remarked or not isinstance(phase, Running):
            return False
        due_s = phase.since_s + NOT_ELASTIC_AFTER_S
        self._is_remarked = not self.states and self.since_s <= due_s <= now
        return self._is_remarked

    # -- workers that block the others ----------------------------------------------------------

    def faults(self, job: Job, *, now: float, heartbeat_s: float) -> dict[str, frozenset[int]]:
        """Reason -> the workers that must be killed for it."""
        here = [n for n in job.numbers if n not in _exits(job)]
        stuck = generation_rules.silent(self._present(job, here), now=now, heartbeat_s=heartbeat_s)
        found = {
            f"no report for {heartbeat_s:g} s while the other workers wait": stuck,
            "did not exit in time after its removal": self._overdue(job, here, now=now),
        }
        new = {why: self._new(who, now=now, again_s=heartbeat_s) for why, who in found.items()}
        return {why: who for why, who in new.items() if who}

    def _present(self, job: Job, here: Iterable[int]) -> dict[int, MemberState]:
        """The states of the workers that run. A worker that trained before this daemon started and
        has not reported since may still be in its backoff, so it gets more time."""
        found = {n: self.states[n] for n in here if n in self.states}
        if generation_rules.newest(found) > NO_GENERATION and isinstance(job.phase, Running):
            unheard = MemberState(heard_at_s=self.since_s + BACKOFF_MAX_S)
            found |= {n: unheard for n in job.phase.numbers if n in here and n not in found}
        return found

    def _overdue(self, job: Job, here: Iterable[int], *, now: float) -> frozenset[int]:
        """Removed workers that still run after the grace period, although the others continued."""
        if not self.has_formed(job):
            return frozenset()
        if self._formed_at_s is None:
            self._formed_at_s = now
        is_late = now - self._formed_at_s > job.spec.grace_s
        return frozenset(here).difference(self.wanted.numbers) if is_late else frozenset()

    def _new(self, workers: frozenset[int], *, now: float, again_s: float) -> frozenset[int]:
        """The workers that were not reported within the last `again_s`."""
        found = frozenset(n for n in workers if now - self._ended.get(n, -again_s) >= again_s)
        self._ended |= dict.fromkeys(found, now)
        return found


def _exits(job: Job) -> dict[int, int]:
    phase = job.phase
    return dict(phase.exits) if isinstance(phase, Running | Starting) else {}
