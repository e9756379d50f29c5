"""The one owner of the scheduler's state.

`apply` records a fact and follows the state table. `view` is what a decision is made from,
`round.decide` makes it, and `commit` takes the plan over as what should be. The difference
between what should be (the plan) and what is (the jobs' phases) is the only reason for a command,
and `_reconcile` is the only place where one is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rota.core.commands import ChangeMembership, StartWorkers, StopWorkers
from rota.core.effects import Effects, Transition
from rota.core.events import (
    Event,
    JobEvent,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    NodeSeen,
    ProgressReported,
    TimerFired,
    WorkersLost,
)
from rota.core.intent import Intent
from rota.core.ledger import Ledger
from rota.core.life import Entry, Reaction, enter, react, submitted
from rota.core.model import (
    Allocation,
    Ended,
    Held,
    Job,
    JobId,
    Node,
    NodeId,
    Purpose,
    Queued,
    Running,
    Starting,
    Stopping,
    newcomers,
)
from rota.core.plan import Plan
from rota.core.progress import service_at
from rota.core.speed import SpeedModel
from rota.core.states import State, Trigger, UnlistedTransitionError, follow
from rota.core.view import Rules, View

RETURNING = (Purpose.RESIZE, Purpose.PREEMPT, Purpose.LOST)
"""Purposes after which a job may run again at once."""
WORDS = {Purpose.RESIZE: "to start again at its new size", Purpose.PREEMPT: "gives way"}


class Kernel:
    """All state, one writer. Nothing here reads a clock: `now` is always given."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.wants_round = False
        self._jobs: dict[JobId, Job] = {}
        self._outcomes: dict[JobId, State] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._intent = Intent()
        self._ledger = Ledger()
        self._waiting: dict[JobId, None] = {}
        """Jobs whose planned slots are not all free yet, in the order in which they came."""
        self._timed: dict[JobId, None] = {}
        """Jobs with a back-off or a time limit."""
        self._speeds: dict[str, SpeedModel] = {}
        self._plan_wakes_at_s = math.inf

    # -- facts ----------------------------------------------------------------------------------

    def apply(self, event: Event, now: float) -> Effects:
        """Record a fact; whatever follows from it is in the effects."""
        effects = Effects()
        match event:
            case JobSubmitted():
                self._submit(event, now, effects)
            case NodeSeen():
                self._nodes[event.node.id] = event.node
                self._nodes_changed(now, effects)
            case NodeDrained():
                if event.node_id in self._nodes:
                    node = self._nodes[event.node_id]
                    self._nodes[event.node_id] = replace(node, is_draining=True)
                    self._nodes_changed(now, effects)
            case NodeLost():
                self._lose_node(event.node_id, now, effects)
            case TimerFired():
                self._wake(now, effects)
            case _:
                self._tell_job(event, now, effects)
        return effects

    def job(self, job_id: JobId) -> Job | None:
        return self._jobs.get(job_id)

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """Every job that is not over, in the order of submission."""
        return self._jobs

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return self._nodes

    # -- decisions ------------------------------------------------------------------------------

    def view(self, now: float) -> View:
        """A snapshot for `decide`; later facts do not touch it."""
        self.wants_round = False
        return View(
            now=now,
            jobs=tuple(job for job in self._jobs.values() if self._may_run(job, now)),
            nodes=self._nodes.copy(),
            planned=self._intent.allocations.copy(),
            gpu_types=self._intent.gpu_types.copy(),
            free=self._intent.free.copy(),
            empty=self._intent.empty,
            rules=self.rules,
        )

    def commit(self, plan: Plan, now: float) -> Effects:
        """Take over a plan, as far as it still fits the state as it is by now."""
        effects = Effects()
        self._plan_wakes_at_s = plan.wake_at_s
        for job_id, queue in plan.queues.items():
            if job_id in self._jobs:
                self._put(replace(self._jobs[job_id], queue=queue), effects)
        changed, is_partial = self._intent.follow(
            plan, self._jobs, may_run=lambda job: self._may_run(job, now)
        )
        self.wants_round |= is_partial
        for job_id in changed:
            self._reconcile(job_id, now, effects)
        return effects

    def next_timer_s(self, now: float) -> float:
        """When `TimerFired` is due: a back-off or a time limit ends, or the plan said so."""
        return min([self._plan_wakes_at_s, *(self._due_s(job, now) for job in self._timed)])

    def _due_s(self, job_id: JobId, now: float) -> float:
        job = self._jobs[job_id]
        match job.phase:
            case Queued(not_before_s=until_s) if until_s > now:
                return until_s
            case Starting() | Running():
                left_s = job.spec.time_limit_s - service_at(job, now).running_s
                return now + max(0.0, left_s)
            case _:
                return math.inf

    def recover(
        self,
        jobs: Iterable[Job],
        nodes: Iterable[Node],
        outcomes: Mapping[JobId, State],
    ) -> Effects:
        """Go on after a crash from what was written down: orders that may not have arrived are
        given again with their old fences."""
        effects = Effects()
        self._nodes = {node.id: node for node in nodes}
        self._outcomes = dict(outcomes)
        for job in sorted(jobs, key=lambda job: (job.submitted_s, job.id)):
            self._jobs[job.id] = job
            self._ledger.book(job.members, job.spec)
            self._repeat_orders(job, effects)
        self._intent.rebuild(self._jobs, self._nodes)
        self.wants_round = True
        return effects

    # -- facts about jobs -----------------------------------------------------------------------

    def _submit(self, event: JobSubmitted, now: float, effects: Effects) -> None:
        if event.job_id in self._jobs or event.job_id in self._outcomes:
            return
        known = self._speeds.get(event.spec.category) if event.spec.category else None
        job = submitted(event, now, known)
        self._put(job, effects)
        effects.transitions.append(Transition(now, job.id, 0, None, job.state, "submitted"))
        self.wants_round = True

    def _tell_job(self, event: JobEvent, now: float, effects: Effects) -> None:
        job = self._jobs.get(event.job_id)
        if job is None:
            return
        reaction = react(job, event, now)
        if reaction.job is not job:
            self._put(reaction.job, effects)
        if isinstance(event, ProgressReported) and event.epoch_s is not None and job.spec.category:
            self._speeds[job.spec.category] = reaction.job.speed
        if reaction.trigger is not None:
            self._follow(reaction, now, effects, cause=type(event).__name__)

    def _follow(self, reaction: Reaction, now: float, effects: Effects, *, cause: str) -> None:
        """Follow the table, and do what the new state asks for."""
        job, trigger = reaction.job, reaction.trigger
        assert trigger is not None
        try:
            state = follow(job.state, trigger)
        except UnlistedTransitionError as error:
            self._hold_for_a_bug(job, now, effects, bug=str(error))
            return
        if state is None or trigger is Trigger.PROGRESS:
            return
        entry = Entry(now, reaction.reason, reaction.purpose, backoff_s=self.rules.backoff_s)
        self._enter(job, state, entry, effects, cause=cause)
        self._settle(job, now, effects)

    def _enter(self, job: Job, state: State, entry: Entry, effects: Effects, *, cause: str) -> Job:
        after = enter(job, state, entry)
        self._put(after, effects)
        effects.transitions.append(
            Transition(
                entry.now, job.id, after.attempt, job.state, after.state, cause, entry.reason
            )
        )
        return after

    def _settle(self, before: Job, now: float, effects: Effects) -> None:
        """Book out what a transition freed, and give the orders that it calls for."""
        job = self._jobs[before.id]
        if isinstance(job.phase, Stopping) and not isinstance(before.phase, Stopping):
            effects.commands.append(_order_to_stop(job))
        if not self._keeps_its_plan(before, job):
            self._intent.drop(job)
        freed = self._unbook(before, job)
        if isinstance(job.phase, Ended):
            self._finish(job, now, effects)
        self.wants_round |= bool(freed) or isinstance(job.phase, Queued | Held | Ended)
        self._reconcile(job.id, now, effects)
        if freed:
            for waiting in list(self._waiting):
                self._reconcile(waiting, now, effects)

    def _keeps_its_plan(self, before: Job, job: Job) -> bool:
        """A job that stops only to start again may already be planned somewhere."""
        if isinstance(job.phase, Queued):
            phase = before.phase
            return isinstance(phase, Stopping) and phase.purpose in RETURNING
        if isinstance(job.phase, Stopping):
            return job.phase.purpose in (Purpose.RESIZE, Purpose.PREEMPT)
        return isinstance(job.phase, Starting | Running)

    def _unbook(self, before: Job, job: Job) -> Allocation:
        """Write off the slots that a transition freed."""
        if isinstance(job.phase, Starting | Running | Stopping):
            is_switched = isinstance(before.phase, Running) and before.phase.joining
            is_switched = is_switched and isinstance(job.phase, Running)
            freed = newcomers(job.allocation, before.allocation) if is_switched else ()
        else:
            freed = before.members
        self._ledger.unbook(freed, job.spec)
        return freed

    def _finish(self, job: Job, now: float, effects: Effects) -> None:
        self._outcomes[job.id] = job.state
        del self._jobs[job.id]
        self._waiting.pop(job.id, None)
        self._timed.pop(job.id, None)
        if job.state is State.SUCCEEDED:
            return
        for other in [other for other in self._jobs.values() if job.id in other.spec.after]:
            reason = f"{job.id}, which it waits for, has {job.state}"
            self._follow(Reaction(other, Trigger.GAVE_UP, reason), now, effects, cause="JobEnded")

    def _hold_for_a_bug(self, job: Job, now: float, effects: Effects, *, bug: str) -> None:
        is_active = isinstance(job.phase, Starting | Running | Stopping)
        state = State.STOPPING if is_active else State.HELD
        entry = Entry(now, f"held because of a bug in rota: {bug}", Purpose.HOLD)
        self._enter(job, state, entry, effects, cause="Bug")
        self._settle(job, now, effects)

    def _put(self, job: Job, effects: Effects) -> None:
        self._jobs[job.id] = job
        effects.jobs[job.id] = job
        is_backing_off = isinstance(job.phase, Queued) and job.phase.not_before_s > 0
        if is_backing_off or job.spec.time_limit_s < math.inf:
            self._timed[job.id] = None

    # -- facts about nodes and time -------------------------------------------------------------

    def _nodes_changed(self, now: float, effects: Effects) -> None:
        self.wants_round = True
        for job_id in self._intent.refit(self._jobs, self._nodes):
            self._reconcile(job_id, now, effects)

    def _lose_node(self, node_id: NodeId, now: float, effects: Effects) -> None:
        if self._nodes.pop(node_id, None) is None:
            return
        self._intent.refit(self._jobs, self._nodes)
        for job in list(self._jobs.values()):
            lost = frozenset(i for i, slot in enumerate(job.members) if slot.node == node_id)
            if lost:
                self._tell_job(WorkersLost(job.id, job.attempt, lost), now, effects)
        self._nodes_changed(now, effects)

    def _wake(self, now: float, effects: Effects) -> None:
        self.wants_round = True
        self._plan_wakes_at_s = math.inf
        for job in list(self._jobs.values()):
            is_running = isinstance(job.phase, Running | Starting)
            if is_running and service_at(job, now).running_s >= job.spec.time_limit_s:
                reason = f"reached its time limit of {job.spec.time_limit_s:g} s"
                stop = Reaction(job, Trigger.STOP, reason, Purpose.FAIL)
                self._follow(stop, now, effects, cause="TimerFired")

    def _may_run(self, job: Job, now: float) -> bool:
        match job.phase:
            case Queued(not_before_s=until_s):
                after = job.spec.after
                return until_s <= now and (not after or all(map(self._succeeded, after)))
            case Stopping(purpose=purpose):
                return purpose in RETURNING
            case phase:
                return isinstance(phase, Starting | Running)

    def _succeeded(self, job_id: JobId) -> bool:
        return self._outcomes.get(job_id) is State.SUCCEEDED

    # -- orders ---------------------------------------------------------------------------------

    def _reconcile(self, job_id: JobId, now: float, effects: Effects) -> None:
        """Give the order that takes a job nearer to its plan, if there is one to give now."""
        job = self._jobs.get(job_id)
        self._waiting.pop(job_id, None)
        if job is None:
            return
        wanted = self._intent.allocations.get(job_id, ())
        match job.phase:
            case Queued() if wanted:
                self._start(job, wanted, now, effects)
            case Starting() | Running() if not wanted:
                self._stop(job, Purpose.PREEMPT, now, effects)
            case Starting(allocation=held) if wanted != held:
                self._stop(job, Purpose.RESIZE, now, effects)
            case Running(allocation=held, joining=()) if wanted != held:
                self._resize(job, wanted, now, effects)
            case _:
                pass

    def _stop(self, job: Job, purpose: Purpose, now: float, effects: Effects) -> None:
        stop = Reaction(job, Trigger.STOP, WORDS[purpose], purpose)
        self._follow(stop, now, effects, cause="Plan")

    def _start(self, job: Job, wanted: Allocation, now: float, effects: Effects) -> None:
        if not self._ledger.try_book(wanted, job.spec, self._nodes):
            self._waiting[job.id] = None
            return
        entry = Entry(now, allocation=wanted)
        state = follow(job.state, Trigger.START)
        assert state is not None
        job = self._enter(job, state, entry, effects, cause="Plan")
        effects.commands.append(StartWorkers(job.id, job.attempt, job.generation, wanted))

    def _resize(self, job: Job, wanted: Allocation, now: float, effects: Effects) -> None:
        joining = newcomers(job.allocation, wanted)
        if not job.spec.mode.resizes_in_place or _share_cards(job.allocation, joining):
            self._stop(job, Purpose.RESIZE, now, effects)
            return
        if not self._ledger.try_book(joining, job.spec, self._nodes):
            self._waiting[job.id] = None
            return
        state = follow(job.state, Trigger.RESIZE)
        assert state is not None
        job = self._enter(job, state, Entry(now, allocation=wanted), effects, cause="Plan")
        effects.commands.append(ChangeMembership(job.id, job.attempt, job.generation, wanted))

    def _repeat_orders(self, job: Job, effects: Effects) -> None:
        match job.phase:
            case Starting():
                order = StartWorkers(job.id, job.attempt, job.generation, job.allocation)
            case Stopping():
                order = _order_to_stop(job)
            case Running() if job.phase.joining:
                order = ChangeMembership(job.id, job.attempt, job.generation, job.phase.joining)
            case _:
                return
        effects.commands.append(order)


def _order_to_stop(job: Job) -> StopWorkers:
    return StopWorkers(job.id, job.attempt, len(job.members), job.spec.grace_s)


def _share_cards(held: Allocation, joining: Allocation) -> bool:
    """Whether a newcomer wants a card that a leaver of the same job still holds."""
    cards = {(slot.node, index) for slot in held for index in slot.gpus}
    return any((slot.node, index) in cards for slot in joining for index in slot.gpus)
