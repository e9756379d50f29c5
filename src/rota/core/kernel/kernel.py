"""The kernel: the single owner of the scheduler's state.

`apply` records an event and follows the state table. `view` returns the snapshot for a decision,
`scheduling.round.decide` makes the decision, and `commit` adopts the plan as the desired state. The
job table works out what that means for each job, and which commands follow.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from rota.core.estimation.category_profiles import CategoryProfiles
from rota.core.estimation.speed_model import SpeedModel
from rota.core.kernel.job_table import AdoptedJob, JobTable
from rota.core.kernel.ledger import Ledger
from rota.core.lifecycle.node_refusals import uses_refused_node, without_expired_refusal
from rota.core.lifecycle.reducer import new_job, timed_out
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import StopWorkers
from rota.core.model.effects import Effects
from rota.core.model.events import (
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
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.view import Rules, View

NO_SPEEDS: Mapping[str, SpeedModel] = MappingProxyType({})


class Kernel:
    """All state of the scheduler, with one writer. It reads no clock: `now` is always an
    argument."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._job_table = JobTable(rules.backoff_s)
        self._categories = CategoryProfiles()
        self._plan_wakes_at_s = math.inf
        self._is_refit_due = False

    def apply(self, event: Event, now: float) -> Effects:
        """Record an event. The effects hold everything that follows from it."""
        return self.apply_all((event,), now)

    def apply_all(self, events: Iterable[Event], now: float) -> Effects:
        """Record several events that arrived together, in their order."""
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
                self._adopt_or_stop(event, effects)
            case ProgressReported():
                self._job_table.apply_event(event, effects)
                if event.job_id in effects.jobs:
                    self._categories.learn_from(effects.jobs[event.job_id])
            case _:
                self._job_table.apply_event(event, effects)

    def job(self, job_id: JobId) -> Job | None:
        return self._job_table.jobs.get(job_id)

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """All jobs that have not ended, in order of submission."""
        return self._job_table.jobs

    def n_queued(self, user: str) -> int:
        """The number of queued and held jobs of a user."""
        return self._job_table.n_queued[user]

    @property
    def outcomes(self) -> Mapping[JobId, JobState]:
        """The final states of jobs that have ended since the start, and of those that jobs which
        have not ended depend on."""
        return self._job_table.outcomes

    @property
    def dependencies(self) -> Collection[JobId]:
        """The jobs, ended or not, that jobs which have not ended depend on."""
        return self._job_table.dependencies

    def forget_outcomes(self, job_ids: Iterable[JobId]) -> None:
        """Forget ended jobs that the store has deleted. No job may depend on them."""
        for job_id in job_ids:
            self._job_table.outcomes.pop(job_id, None)

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return self._job_table.nodes

    @property
    def ledger(self) -> Ledger:
        """What is booked. Read only."""
        return self._job_table.ledger

    @property
    def speeds(self) -> Mapping[str, SpeedModel]:
        """The speed model of each category."""
        return self._categories.speeds

    @property
    def wants_round(self) -> bool:
        """Whether something changed since the last view was taken."""
        return self._job_table.wants_round

    def want_round(self) -> None:
        """Request a round after a change outside the kernel, such as a new policy."""
        self._job_table.wants_round = True

    def view(self, now: float) -> View:
        """A snapshot for the decision of a round. Later events do not change it."""
        self._job_table.wants_round = False
        return self.peek(now)

    def peek(self, now: float) -> View:
        """The same snapshot for a question that changes nothing: the next round stays due."""
        job_table = self._job_table
        jobs, kept_out, over_limit = job_table.runnable(now, max_cpu_jobs=self.rules.max_cpu_jobs)
        for job in [job for job in jobs.values() if job.refusal]:
            jobs[job.id] = without_expired_refusal(job, now)
        free = job_table.desired.free.copy()
        free.leaving = job_table.desired.leaving(job_table.holding())
        return View(
            now=now,
            jobs=jobs,
            nodes=job_table.nodes.copy(),
            planned=job_table.desired.allocations.copy(),
            gpu_types=job_table.desired.gpu_types.copy(),
            free=free,
            empty=job_table.desired.empty,
            rules=self.rules,
            kept_out=kept_out,
            over_limit=over_limit,
        )

    def commit(self, plan: Plan, now: float) -> Effects:
        """Adopt a plan, as far as it still fits the current state."""
        effects = Effects(now)
        job_table = self._job_table
        self._plan_wakes_at_s = plan.wake_at_s
        for job_id, queue in plan.queues.items():
            if job_id in job_table.jobs:
                job_table.put(replace(job_table.jobs[job_id], queue=queue), effects)

        def may_run(job: Job) -> bool:
            is_refused = uses_refused_node(
                without_expired_refusal(job, now), plan.allocations.get(job.id, ())
            )
            return job_table.may_run(job, now) and not is_refused

        changed, is_partial = job_table.desired.adopt(plan, job_table.jobs, may_run=may_run)
        job_table.wants_round |= is_partial
        job_table.adopt(changed, effects)
        return effects

    def next_timer_s(self) -> float:
        """When `TimerFired` is due: for a job's timer, or for the plan's own wake-up time."""
        return min(self._plan_wakes_at_s, self._job_table.timers.next_s())

    def recover(
        self,
        jobs: Iterable[Job | AdoptedJob],
        nodes: Iterable[Node],
        *,
        outcomes: Mapping[JobId, JobState],
        now: float,
        speeds: Mapping[str, SpeedModel] = NO_SPEEDS,
    ) -> Effects:
        """Continue after a crash from the stored state. Commands that may not have arrived are sent
        again with their old fences, and the workers of running jobs are queried. After this call,
        the daemon reports the nodes and workers that it finds.

        `speeds` holds the stored speed models of categories. A category that is not in it learns
        from its jobs that have not ended. An `AdoptedJob` is written as it is now.
        """
        effects = Effects(now)
        job_table = self._job_table
        jobs = list(jobs)
        lost = {each.job.id: each for each in jobs if isinstance(each, AdoptedJob)}
        known = [each.job if isinstance(each, AdoptedJob) else each for each in jobs]
        job_table.nodes.update((node.id, node) for node in nodes)
        if lost:  # The store may have lost nodes, too.
            effects.nodes.update(job_table.nodes)
        job_table.outcomes.update(outcomes)
        self._categories.restore(speeds)
        for job in sorted(known, key=lambda job: (job.submitted_s, job.id)):
            job_table.restore(job, effects)
            if job.id in lost:
                job_table.note_adoption(lost[job.id], effects)
            if job.spec.category not in speeds:
                self._categories.learn_from(job)
        job_table.desired.rebuild(job_table.jobs, job_table.nodes)
        job_table.wants_round = True
        return effects

    # -- events about jobs ----------------------------------------------------------------------

    def _submit(self, event: JobSubmitted, effects: Effects) -> None:
        if event.job_id in self._job_table.jobs or event.job_id in self._job_table.outcomes:
            return
        known = self._categories.speeds.get(event.spec.category)
        job = new_job(event, effects.now, known=known)
        self._job_table.add(job, effects, reason=event.reason)

    def _adopt_or_stop(self, event: WorkersFound, effects: Effects) -> None:
        """Found workers of the current attempt count as started; all others are stopped."""
        job = self.job(event.job_id)
        if job is not None and job.is_active and job.attempt == event.attempt:
            self._job_table.apply_event(WorkersStarted(job.id, job.attempt, event.workers), effects)
            return
        grace_s = job.spec.grace_s if job else 0.0
        workers = tuple(sorted(event.workers))
        effects.commands.append(StopWorkers(event.job_id, event.attempt, workers, grace_s))

    # -- events about nodes and time ------------------------------------------------------------

    def _set_node(self, node: Node, effects: Effects) -> None:
        job_table, known = self._job_table, self.nodes.get(node.id)
        if known == node:
            return
        job_table.nodes[node.id] = effects.nodes[node.id] = node
        if known is not None:
            # A refit checks all planned slots, so it runs once for many changed nodes.
            self._is_refit_due = True
            return
        job_table.desired.add_node(node)
        job_table.wants_round = True

    def _lose_node(self, node_id: NodeId, effects: Effects) -> None:
        if self._job_table.nodes.pop(node_id, None) is None:
            return
        effects.nodes[node_id] = None
        for job in list(self.jobs.values()):
            workers = zip(job.numbers, job.members, strict=True)
            lost = frozenset(number for number, slot in workers if slot.node == node_id)
            if lost:
                self._job_table.apply_event(WorkersLost(job.id, job.attempt, lost), effects)
        self._nodes_changed(effects)

    def _nodes_changed(self, effects: Effects) -> None:
        job_table = self._job_table
        self._is_refit_due = False
        job_table.wants_round = True
        for job_id in job_table.desired.refit(job_table.jobs, job_table.nodes):
            job_table.reconcile(job_id, effects)
        job_table.reconcile_waiting(effects)

    def _wake(self, effects: Effects) -> None:
        self._job_table.wants_round = True
        self._plan_wakes_at_s = math.inf
        for job_id in self._job_table.timers.take_due(effects.now):
            job = self.job(job_id)
            reaction = timed_out(job) if job else None
            if reaction is not None:
                self._job_table.follow_trigger(reaction, effects, cause="TimerFired")
