"""The one owner of the scheduler's state.

`apply` records a fact and follows the state table. `view` is what a decision is made from,
`round.decide` makes it, and `commit` takes the plan over as what should be. What that means for
each job, and the orders that follow, is the roster's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from rota.core.categories import Categories
from rota.core.commands import StopWorkers
from rota.core.effects import Effects
from rota.core.events import (
    Event,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    NodeSeen,
    ProgressReported,
    TimerFired,
    WorkersFound,
    WorkersLost,
    WorkersStarted,
)
from rota.core.ledger import Ledger
from rota.core.life import submitted, timed_out
from rota.core.model import Job, JobId, Node, NodeId
from rota.core.plan import Plan
from rota.core.refusals import is_barred, without_lapsed
from rota.core.roster import Roster
from rota.core.speed import SpeedModel
from rota.core.states import State
from rota.core.view import Rules, View

NOTHING_MEASURED: Mapping[str, SpeedModel] = MappingProxyType({})


class Kernel:
    """All state, one writer. Nothing here reads a clock: `now` is always given."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._roster = Roster(rules.backoff_s)
        self._categories = Categories()
        self._plan_wakes_at_s = math.inf
        self._is_refit_due = False

    def apply(self, event: Event, now: float) -> Effects:
        """Record a fact; whatever follows from it is in the effects."""
        return self.apply_all((event,), now)

    def apply_all(self, events: Iterable[Event], now: float) -> Effects:
        """Record facts that are known together, one after the other."""
        effects = Effects(now)
        for event in events:
            if self._is_refit_due and not isinstance(event, NodeSeen):
                self._nodes_changed(effects)
            self._apply(event, effects)
        if self._is_refit_due:
            self._nodes_changed(effects)
        return effects

    def _apply(self, event: Event, effects: Effects) -> None:
        match event:
            case JobSubmitted():
                self._submit(event, effects)
            case NodeSeen():
                self._set_node(event.node, effects)
            case NodeDrained():
                if event.node_id in self.nodes:
                    node = self.nodes[event.node_id]
                    self._set_node(replace(node, is_draining=True), effects)
            case NodeLost():
                self._lose_node(event.node_id, effects)
            case TimerFired():
                self._wake(effects)
            case WorkersFound():
                self._adopt_or_end(event, effects)
            case ProgressReported():
                self._roster.tell(event, effects)
                if event.job_id in effects.jobs:
                    self._categories.learn_from(effects.jobs[event.job_id])
            case _:
                self._roster.tell(event, effects)

    def job(self, job_id: JobId) -> Job | None:
        return self._roster.jobs.get(job_id)

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """Every job that is not over, in the order of submission."""
        return self._roster.jobs

    @property
    def outcomes(self) -> Mapping[JobId, State]:
        """How jobs ended that are over."""
        return self._roster.outcomes

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return self._roster.nodes

    @property
    def ledger(self) -> Ledger:
        """What is booked, to be read only."""
        return self._roster.ledger

    @property
    def speeds(self) -> Mapping[str, SpeedModel]:
        """What the jobs of each category measured."""
        return self._categories.speeds

    @property
    def wants_round(self) -> bool:
        """Whether something changed since the last view was taken."""
        return self._roster.wants_round

    def want_round(self) -> None:
        """Something that is none of the kernel's business changed: the policy."""
        self._roster.wants_round = True

    def view(self, now: float) -> View:
        """A snapshot for `decide`; later facts do not touch it."""
        roster = self._roster
        roster.wants_round = False
        free = roster.intent.free.copy()
        free.leaving = roster.intent.leaving(roster.jobs.values())
        return View(
            now=now,
            jobs=tuple(
                without_lapsed(job, now) for job in roster.jobs.values() if roster.may_run(job, now)
            ),
            nodes=roster.nodes.copy(),
            planned=roster.intent.allocations.copy(),
            gpu_types=roster.intent.gpu_types.copy(),
            free=free,
            empty=roster.intent.empty,
            rules=self.rules,
        )

    def commit(self, plan: Plan, now: float) -> Effects:
        """Take over a plan, as far as it still fits the state as it is by now."""
        effects = Effects(now)
        roster = self._roster
        self._plan_wakes_at_s = plan.wake_at_s
        for job_id, queue in plan.queues.items():
            if job_id in roster.jobs:
                roster.put(replace(roster.jobs[job_id], queue=queue), effects)

        def may_run(job: Job) -> bool:
            is_shut_out = is_barred(without_lapsed(job, now), plan.allocations.get(job.id, ()))
            return roster.may_run(job, now) and not is_shut_out

        changed, is_partial = roster.intent.follow(plan, roster.jobs, may_run=may_run)
        roster.wants_round |= is_partial
        for job_id in changed:
            roster.reconcile(job_id, effects)
        return effects

    def next_timer_s(self) -> float:
        """When `TimerFired` is due: a back-off or a time limit ends, or the plan said so."""
        return min(self._plan_wakes_at_s, self._roster.timers.next_s())

    def recover(
        self,
        jobs: Iterable[Job],
        nodes: Iterable[Node],
        *,
        outcomes: Mapping[JobId, State],
        now: float,
        speeds: Mapping[str, SpeedModel] = NOTHING_MEASURED,
    ) -> Effects:
        """Go on after a crash from what was written down. Orders that may not have arrived are
        given again with their old fences, and what runs is asked about. Then the shell tells
        what else is true by now: which nodes it sees or misses, which workers it found.

        `speeds` is what categories had measured. A category that is not there is known by its
        jobs that are not over."""
        effects = Effects(now)
        roster = self._roster
        roster.nodes.update((node.id, node) for node in nodes)
        roster.outcomes.update(outcomes)
        self._categories.restore(speeds)
        for job in sorted(jobs, key=lambda job: (job.submitted_s, job.id)):
            roster.restore(job, effects)
            if job.spec.category not in speeds:
                self._categories.learn_from(job)
        roster.intent.rebuild(roster.jobs, roster.nodes)
        roster.wants_round = True
        return effects

    # -- facts about jobs -----------------------------------------------------------------------

    def _submit(self, event: JobSubmitted, effects: Effects) -> None:
        if event.job_id in self._roster.jobs or event.job_id in self._roster.outcomes:
            return
        known = self._categories.speeds.get(event.spec.category)
        job = submitted(event, effects.now, known=known)
        self._roster.add(job, effects, reason=event.reason)

    def _adopt_or_end(self, event: WorkersFound, effects: Effects) -> None:
        """Workers of the attempt that we know of run, as they should; others are ended."""
        job = self.job(event.job_id)
        if job is not None and job.is_active and job.attempt == event.attempt:
            self._roster.tell(WorkersStarted(job.id, job.attempt, event.workers), effects)
            return
        grace_s = job.spec.grace_s if job else 0.0
        workers = tuple(sorted(event.workers))
        effects.commands.append(StopWorkers(event.job_id, event.attempt, workers, grace_s))

    # -- facts about nodes and time -------------------------------------------------------------

    def _set_node(self, node: Node, effects: Effects) -> None:
        roster, known = self._roster, self.nodes.get(node.id)
        if known == node:
            return
        roster.nodes[node.id] = effects.nodes[node.id] = node
        if known is not None:
            # It concerns every plan, so that many nodes that change at once are looked at once.
            self._is_refit_due = True
            return
        roster.intent.add_node(node)
        roster.wants_round = True

    def _lose_node(self, node_id: NodeId, effects: Effects) -> None:
        if self._roster.nodes.pop(node_id, None) is None:
            return
        effects.nodes[node_id] = None
        for job in list(self.jobs.values()):
            workers = zip(job.numbers, job.members, strict=True)
            lost = frozenset(number for number, slot in workers if slot.node == node_id)
            if lost:
                self._roster.tell(WorkersLost(job.id, job.attempt, lost), effects)
        self._nodes_changed(effects)

    def _nodes_changed(self, effects: Effects) -> None:
        roster = self._roster
        self._is_refit_due = False
        roster.wants_round = True
        for job_id in roster.intent.refit(roster.jobs, roster.nodes):
            roster.reconcile(job_id, effects)
        roster.reconcile_waiting(effects)

    def _wake(self, effects: Effects) -> None:
        self._roster.wants_round = True
        self._plan_wakes_at_s = math.inf
        for job_id in self._roster.timers.take_due(effects.now):
            job = self.job(job_id)
            reaction = timed_out(job) if job else None
            if reaction is not None:
                self._roster.follow(reaction, effects, cause="TimerFired")
