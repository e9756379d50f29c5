"""The jobs that are not over: what they hold, what they should hold, and the way there.

The kernel hands facts on to this. A transition happens in `_enter` and nowhere else; `_settle`
then books what it changed. The difference between what should be (the plan) and what is (the
jobs' phases) is the only reason to start, stop or resize a job, and `reconcile` is the only place
that looks for it.
"""

from __future__ import annotations

from dataclasses import replace

from rota.core.effects import Effects, Transition
from rota.core.events import (
    JobEvent,
    JobPrioritised,
    JobResized,
    WorkerSlow,
    WorkersSilent,
)
from rota.core.growth import why_size
from rota.core.intent import Intent
from rota.core.ledger import Ledger
from rota.core.life import react
from rota.core.model import (
    Allocation,
    Ended,
    Held,
    HoldsGpus,
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
from rota.core.orders import kill, orders_after, standing_orders, stop
from rota.core.phases import IN_VAIN, Entry, enter
from rota.core.progress import with_loss
from rota.core.reaction import Reaction
from rota.core.states import State, Trigger, UnlistedTransitionError, follow
from rota.core.timers import Timers

RETURNING = (Purpose.RESIZE, Purpose.PREEMPT, Purpose.LOST)
"""Purposes after which a job may run again at once."""
WORDS = {Purpose.RESIZE: "to start again at its new size", Purpose.PREEMPT: "gives way"}
WORDS_FOR_ENDS = {State.FAILED: "failed", State.CANCELLED: "been cancelled"}


class Roster:
    """Takes every job through its life."""

    def __init__(self, backoff_s: float) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.outcomes: dict[JobId, State] = {}
        """How those ended that are over."""
        self.nodes: dict[NodeId, Node] = {}
        self.intent = Intent()
        self.ledger = Ledger()
        """Always what the jobs' members hold."""
        self.timers = Timers()
        self.wants_round = False
        self._backoff_s = backoff_s
        self._waiting: dict[JobId, None] = {}
        """Jobs whose planned slots are not all free yet, in the order in which they came."""

    def put(self, job: Job, effects: Effects) -> None:
        """Remember a job as it is now; that alone is no transition."""
        self.jobs[job.id] = job
        effects.jobs[job.id] = job
        self.timers.set(job)

    def add(self, job: Job, effects: Effects, *, reason: str = "") -> None:
        """A new job."""
        self.put(job, effects)
        row = Transition(effects.now, job.id, 0, None, job.state, "JobSubmitted", reason)
        effects.transitions.append(row)
        self.wants_round = True
        self._give_up_if_in_vain(job.id, effects)

    def restore(self, job: Job, effects: Effects) -> None:
        """A job as it was written down before a crash."""
        self.jobs[job.id] = job
        self.timers.set(job)
        self.ledger.book(job.members, job.spec)
        effects.commands += standing_orders(job)

    def tell(self, event: JobEvent, effects: Effects) -> None:
        """Let a job know what happened to it."""
        job = self.jobs.get(event.job_id)
        if job is None:
            return
        reaction = react(job, event, now=effects.now)
        if reaction.job is not job:
            self.put(reaction.job, effects)
        if reaction.trigger is not None:
            self.follow(reaction, effects, cause=type(event).__name__)
        elif reaction.reason:
            self.wants_round |= isinstance(event, JobResized | JobPrioritised)
            self._note(job, effects, cause=type(event).__name__, reason=reaction.reason)
        elif isinstance(event, WorkerSlow) and event.attempt == job.attempt:
            self._move(job, event, effects=effects)
        elif isinstance(event, WorkersSilent) and (killing := kill(job, event)):
            effects.commands += killing
            self._note(job, effects, cause="WorkersSilent", reason=event.reason)

    def _move(self, job: Job, event: WorkerSlow, *, effects: Effects) -> None:
        """A newcomer first, elsewhere; when it has joined, the slow one leaves."""
        phase = job.phase
        if not isinstance(phase, Running) or phase.joining or event.worker not in phase.numbers:
            return
        slot = phase.allocation[phase.numbers.index(event.worker)]
        if job.spec.mode.resizes_in_place and self.intent.move(job, slot):
            self._note(job, effects, cause="WorkerSlow", reason=event.reason)
            self.reconcile(job.id, effects)

    def _note(self, job: Job, effects: Effects, *, cause: str, reason: str) -> None:
        """A row of the story that leads to no other state."""
        row = Transition(effects.now, job.id, job.attempt, job.state, job.state, cause, reason)
        effects.transitions.append(row)

    def may_run(self, job: Job, now: float) -> bool:
        """Whether a plan may give the job slots now."""
        match job.phase:
            case Queued(not_before_s=until_s):
                after = job.spec.after
                return until_s <= now and (not after or all(map(self._succeeded, after)))
            case Stopping(purpose=purpose):
                return purpose in RETURNING
            case phase:
                return isinstance(phase, Starting | Running)

    def _succeeded(self, job_id: JobId) -> bool:
        return self.outcomes.get(job_id) is State.SUCCEEDED

    # -- from state to state --------------------------------------------------------------------

    def follow(self, reaction: Reaction, effects: Effects, *, cause: str) -> None:
        """Follow the table, and do what the new state asks for."""
        job, trigger, purpose = reaction.job, reaction.trigger, reaction.purpose
        assert trigger is not None
        try:
            state = follow(job.state, trigger)
        except UnlistedTransitionError as error:
            self._hold_for_a_bug(job, effects, bug=str(error))
            return
        if state is None or trigger is Trigger.PROGRESS:
            return
        if state is State.QUEUED and purpose is Purpose.RESIZE and not self._is_planned(job.id):
            purpose = Purpose.PREEMPT  # Its new size was taken back while it stopped.
        reason = with_loss(reaction.reason, job) if state in IN_VAIN else reaction.reason
        allocation, gone = reaction.allocation, reaction.gone
        entry = Entry(effects.now, reason, purpose, allocation, self._backoff_s, gone)
        self._enter(job, state, entry=entry, cause=cause, effects=effects)
        if gone:
            self._replan_without(job, gone, effects=effects)

    def _replan_without(self, before: Job, gone: frozenset[int], *, effects: Effects) -> None:
        """The slots of the dead are free; to replace them is the next round's business."""
        workers = zip(before.numbers, before.members, strict=True)
        job = self.jobs[before.id]
        self.intent.lose(job, [slot for number, slot in workers if number in gone])
        self.wants_round = True
        self.reconcile(job.id, effects)

    def _enter(
        self, before: Job, state: State, *, entry: Entry, cause: str, effects: Effects
    ) -> None:
        job = enter(before, state, entry=entry)
        self.put(job, effects)
        row = Transition(
            entry.now, job.id, job.attempt, before.state, job.state, cause, entry.reason
        )
        effects.transitions.append(row)
        effects.commands += orders_after(before, job)
        self._settle(before, job, effects=effects)

    def _settle(self, before: Job, job: Job, *, effects: Effects) -> None:
        """Book what a transition changed, and see what has become possible by it."""
        is_changed = before.members != job.members
        if is_changed:
            self.ledger.unbook(before.members, job.spec)
            self.ledger.book(job.members, job.spec)
        if not _keeps_its_plan(before, job):
            self.wants_round |= self.intent.drop(job)
        if isinstance(job.phase, Ended):
            self._finish(job, effects)
        self.wants_round |= isinstance(job.phase, Queued | Held | Ended)
        self.reconcile(job.id, effects)
        if is_changed and before.is_active:
            self.reconcile_waiting(effects)

    def _finish(self, job: Job, effects: Effects) -> None:
        self.outcomes[job.id] = job.state
        del self.jobs[job.id]
        if job.state is not State.SUCCEEDED:
            dependents = [each.id for each in self.jobs.values() if job.id in each.spec.after]
            for job_id in dependents:
                self._give_up_if_in_vain(job_id, effects)

    def _give_up_if_in_vain(self, job_id: JobId, effects: Effects) -> None:
        """A job that waits for one that did not succeed will never run."""
        job = self.jobs.get(job_id)
        if job is None or job.is_active:
            return
        for needed in job.spec.after:
            outcome = self.outcomes.get(needed, State.SUCCEEDED)
            if outcome is not State.SUCCEEDED:
                reason = f"{needed}, which it waits for, has {WORDS_FOR_ENDS[outcome]}"
                self.follow(Reaction(job, Trigger.GAVE_UP, reason), effects, cause="JobEnded")
                return

    def _hold_for_a_bug(self, job: Job, effects: Effects, *, bug: str) -> None:
        entry = Entry(effects.now, f"held because of a bug in rota: {bug}", Purpose.HOLD)
        if not isinstance(job.phase, HoldsGpus):
            self._enter(job, State.HELD, entry=entry, cause="Bug", effects=effects)
            return
        # The exits that led here are spent. The order to stop makes the engine tell them again.
        unheard = replace(job, hears=False, phase=replace(job.phase, exits={}))
        self._enter(unheard, State.STOPPING, entry=entry, cause="Bug", effects=effects)
        if isinstance(job.phase, Stopping) and job.phase.insists_at_s is None:
            effects.commands.append(stop(unheard))

    # -- from what is to what should be ---------------------------------------------------------

    def reconcile(self, job_id: JobId, effects: Effects) -> None:
        """Take a job one step nearer to its plan, if there is a step to take now."""
        job = self.jobs.get(job_id)
        self._waiting.pop(job_id, None)
        if job is None:
            return
        wanted = self.intent.allocations.get(job_id, ())
        match job.phase:
            case Queued() if wanted:
                self._start(job, wanted, effects=effects)
            case Starting() | Running() if not wanted:
                self._stop(job, Purpose.PREEMPT, effects=effects)
            case Starting(allocation=held) if wanted != held:
                self._stop(job, Purpose.RESIZE, effects=effects)
            case Running(allocation=held, joining=()) if wanted != held:
                self._resize(job, wanted, effects=effects)
            case _:
                pass

    def reconcile_waiting(self, effects: Effects) -> None:
        """Somebody's slots may have become free."""
        for job_id in list(self._waiting):
            self.reconcile(job_id, effects)

    def _is_planned(self, job_id: JobId) -> bool:
        return job_id in self.intent.allocations

    def _start(self, job: Job, wanted: Allocation, *, effects: Effects) -> None:
        if self.ledger.has_room(wanted, job.spec, nodes=self.nodes):
            start = Reaction(job, Trigger.START, allocation=wanted)
            self.follow(start, effects, cause="Plan")
        else:
            self._waiting[job.id] = None

    def _stop(self, job: Job, purpose: Purpose, *, effects: Effects, why: str = "") -> None:
        reason = f"{WORDS[purpose]}; {why}" if why else WORDS[purpose]
        self.follow(Reaction(job, Trigger.STOP, reason, purpose), effects, cause="Plan")

    def _resize(self, job: Job, wanted: Allocation, *, effects: Effects) -> None:
        """In place, if the job can do that and newcomers need not wait for its own leavers."""
        assert isinstance(job.phase, Running)
        joining = newcomers(job.allocation, wanted)
        why = str(why_size(job, len(wanted), now=effects.now) or "")
        if not job.spec.mode.resizes_in_place:
            self._stop(job, Purpose.RESIZE, effects=effects, why=why)
        elif job.phase.exits:
            pass  # It is about to end by itself.
        elif self.ledger.has_room(joining, job.spec, nodes=self.nodes):
            resize = Reaction(job, Trigger.RESIZE, why, allocation=wanted)
            self.follow(resize, effects, cause="Plan")
        elif self.ledger.has_room_without(job.members, wanted, spec=job.spec, nodes=self.nodes):
            # It is only in its own way.
            self._stop(job, Purpose.RESIZE, effects=effects)
        else:
            self._waiting[job.id] = None


def _keeps_its_plan(before: Job, job: Job) -> bool:
    """A job that stops only to start again may already be planned somewhere."""
    match job.phase:
        case Queued(since_s=since_s, not_before_s=until_s):
            phase = before.phase
            may_return = isinstance(phase, Stopping) and phase.purpose in RETURNING
            return may_return and until_s <= since_s
        case Stopping(purpose=purpose):
            return purpose in (Purpose.RESIZE, Purpose.PREEMPT)
        case phase:
            return isinstance(phase, Starting | Running)
