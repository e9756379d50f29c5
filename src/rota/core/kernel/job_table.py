"""The table of all jobs that have not ended, and the steps from what they hold to what the plan
wants.

The kernel forwards events to this table. Every transition happens in `_enter`, and `_settle` then
books what the transition changed. The difference between the desired state (the plan) and the
observed state (the jobs' phases) is the only reason to start, stop or resize a job, and only
`reconcile` computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rota.core.estimation.service_time import with_lost_work
from rota.core.explain.preemptors import Preemptors, resize_text
from rota.core.kernel.desired_state import DesiredState
from rota.core.kernel.ledger import Ledger
from rota.core.kernel.run_limits import CPU_JOBS_PER_CPU, above_array_limit, above_user_limit
from rota.core.lifecycle.commands_for import (
    commands_after,
    commands_to_resend,
    kill_commands,
    stop_command,
)
from rota.core.lifecycle.dependencies import blocking_end, is_ready
from rota.core.lifecycle.reducer import react
from rota.core.lifecycle.size_caps import size_reason
from rota.core.lifecycle.states import (
    JobState,
    Purpose,
    Trigger,
    UnlistedTransitionError,
    next_state,
)
from rota.core.lifecycle.timers import Timers
from rota.core.lifecycle.transitions import UNSUCCESSFUL_STATES, Reaction, TransitionContext, enter
from rota.core.model.allocation import Allocation, added_slots
from rota.core.model.effects import Effects, Transition
from rota.core.model.events import (
    Bug,
    JobEdited,
    JobEvent,
    JobResized,
    StartFailed,
    WorkersExited,
    WorkersLost,
    WorkerSlow,
    WorkersSilent,
)
from rota.core.model.job import (
    ActivePhase,
    Ended,
    Held,
    Job,
    JobId,
    Queued,
    Running,
    Starting,
    Stopping,
)
from rota.core.model.node import Node, NodeId
from rota.errors import internal_error_message

RESUMABLE_PURPOSES = (Purpose.RESIZE, Purpose.PREEMPT, Purpose.LOST)
"""Purposes of a stop after which a job may start again at once."""
BUG = Bug.__name__
"""The cause, in the history of a job, of what follows from an error of rota itself."""
HELD_AFTER_BUG = "held because of a bug in rota"
ADOPTION = "adopted from the record of its start, which the store has lost"


@dataclass(frozen=True, slots=True)
class AdoptedJob:
    """A job as the engine recorded its newest start, and as the store knows it, if it does."""

    job: Job
    stored: Job | None


class JobTable:
    """Holds all jobs and applies every transition."""

    def __init__(self, backoff_s: float) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.outcomes: dict[JobId, JobState] = {}
        """The final states of jobs that have ended."""
        self.nodes: dict[NodeId, Node] = {}
        self.desired = DesiredState()
        self.ledger = Ledger()
        """Always equal to what the jobs' members hold."""
        self.timers = Timers()
        self.wants_round = False
        self._backoff_s = backoff_s
        self._waiting: dict[JobId, None] = {}
        """Jobs whose planned slots are not all free yet, in order of arrival."""
        self._dependents: dict[JobId, dict[JobId, None]] = {}
        """The jobs that have not ended, by each job that they depend on, in order of arrival."""
        self.n_queued = Counter[str]()
        """The queued and held jobs of each user."""
        self._holding: dict[JobId, None] = {}
        """The jobs whose members hold slots."""
        self._depending = set[JobId]()
        """The jobs that have not ended and depend on other jobs."""
        self._limited = set[JobId]()
        """The jobs that have not ended of arrays with a limit of jobs that run at once."""

    def put(self, job: Job, effects: Effects) -> None:
        """Record a job as it is now. This alone is no transition."""
        self._count_queued(self.jobs.get(job.id), job)
        self.jobs[job.id] = job
        effects.jobs[job.id] = job
        self.timers.set(job)

    def add(self, job: Job, effects: Effects, *, reason: str = "") -> None:
        """Add a new job."""
        self.put(job, effects)
        self._index(job)
        row = Transition(effects.now, job.id, 0, None, job.state, "JobSubmitted", reason)
        effects.transitions.append(row)
        self.wants_round = True
        self._end_if_it_can_never_start(job.id, effects)

    def restore(self, job: Job, effects: Effects) -> None:
        """Add a job as it was stored before a crash."""
        self._count_queued(None, job)
        self.jobs[job.id] = job
        self._index(job)
        self.timers.set(job)
        self._book(job)
        try:
            effects.commands += commands_to_resend(job)
        except Exception as error:  # noqa: BLE001 - recorded in the effects
            effects.errors.append(error)
            self._hold_or_note(job, effects, bug=internal_error_message(error))

    def note_adoption(self, adopted: AdoptedJob, effects: Effects) -> None:
        """Write a restored job that the store had lost, or of which it had lost the newest
        start."""
        job, stored = adopted.job, adopted.stored
        effects.jobs[job.id] = job
        before = None if stored is None else stored.state
        if stored is not None and stored.is_active:
            before = JobState.QUEUED
            end = Transition(
                effects.now, job.id, stored.attempt, stored.state, before, cause="JobAdopted"
            )
            effects.transitions.append(replace(end, reason="the store has lost its end"))
        row = Transition(
            effects.now, job.id, job.attempt, before, job.state, cause="JobAdopted", reason=ADOPTION
        )
        effects.transitions.append(row)

    def apply_event(self, event: JobEvent, effects: Effects) -> None:
        """Apply an event to its job."""
        job = self.jobs.get(event.job_id)
        if job is None:
            return
        try:
            reaction = react(job, event, now=effects.now)
        except Exception as error:  # noqa: BLE001 - recorded in the effects
            self._fail_to_react(job, event, effects=effects, error=error)
            return
        if reaction.job is not job:
            self.put(reaction.job, effects)
        # A job that may not be as large as it is must shrink, whatever the event was.
        self.wants_round |= reaction.job.cap != job.cap
        if reaction.trigger is not None:
            self.follow_trigger(reaction, effects, cause=type(event).__name__)
        elif reaction.reason:
            self.wants_round |= isinstance(event, JobResized | JobEdited)
            self._note(job, effects, cause=type(event).__name__, reason=reaction.reason)
            if isinstance(event, JobEdited) and not job.is_active:
                # The planned slots may not fit what the job needs now.
                self.desired.drop(job)
                self.reconcile(job.id, effects)
            if isinstance(event, StartFailed):
                effects.commands += kill_commands(job, event)
        else:
            self._act_on(job, event, effects=effects)

    def _act_on(self, job: Job, event: JobEvent, *, effects: Effects) -> None:
        """Handle an event that leads to no other state by itself."""
        if isinstance(event, Bug) and event.attempt == job.attempt:
            self._hold_or_note(job, effects, bug=event.reason)
        elif isinstance(event, WorkerSlow) and event.attempt == job.attempt:
            self._move(job, event, effects=effects)
        elif isinstance(event, WorkersSilent) and (killing := kill_commands(job, event)):
            effects.commands += killing
            self._note(job, effects, cause="WorkersSilent", reason=event.reason)

    def _move(self, job: Job, event: WorkerSlow, *, effects: Effects) -> None:
        """Replace a slow worker: start a new worker elsewhere; the slow one leaves when the new one
        has joined."""
        phase = job.phase
        if not isinstance(phase, Running) or phase.joining or event.worker not in phase.numbers:
            return
        slot = phase.allocation[phase.numbers.index(event.worker)]
        if job.spec.mode.resizes_in_place and self.desired.move(job, slot):
            self._note(job, effects, cause="WorkerSlow", reason=event.reason)
            self.reconcile(job.id, effects)

    def _note(self, job: Job, effects: Effects, *, cause: str, reason: str) -> None:
        """Add a history row that changes no state."""
        row = Transition(effects.now, job.id, job.attempt, job.state, job.state, cause, reason)
        effects.transitions.append(row)

    @property
    def dependencies(self) -> Collection[JobId]:
        """The jobs, ended or not, that jobs which have not ended depend on."""
        return self._dependents.keys()

    def may_run(self, job: Job, now: float) -> bool:
        """Whether a plan may give the job slots now."""
        match job.phase:
            case Queued(not_before_s=until_s):
                if until_s > now:
                    return False
                return job.id not in self._depending or is_ready(job.spec, self.outcomes)
            case Stopping(purpose=purpose):
                return purpose in RESUMABLE_PURPOSES
            case phase:
                return isinstance(phase, Starting | Running)

    def runnable(
        self, now: float, *, max_cpu_jobs: int | None
    ) -> tuple[dict[JobId, Job], frozenset[JobId], frozenset[JobId]]:
        """The jobs that a plan may give slots now, in order of submission; then the queued jobs
        that only the limit of their array keeps out, and those that only the limit of their user's
        jobs without GPUs keeps out. A queued job with planned slots keeps its place."""
        jobs = {job_id: job for job_id, job in self.jobs.items() if self.may_run(job, now)}
        kept_out: frozenset[JobId] = frozenset()
        if self._limited:
            limited = [self.jobs[job_id] for job_id in self._limited]
            kept_out = above_array_limit(jobs, limited=limited, has_place=self._has_place)
        for job_id in kept_out:
            del jobs[job_id]
        over_limit: frozenset[JobId] = frozenset()
        if max_cpu_jobs is not None:
            n_cpus = sum(node.cpus for node in self.nodes.values())
            most = max_cpu_jobs or n_cpus * CPU_JOBS_PER_CPU
            ids = self._holding | dict.fromkeys(self.desired.allocations)
            running = {job_id: self.jobs[job_id] for job_id in ids if job_id in self.jobs}
            over_limit = above_user_limit(jobs, running=running, most=most)
        for job_id in over_limit:
            del jobs[job_id]
        return jobs, kept_out, over_limit

    def _has_place(self, job: Job) -> bool:
        return job.is_active or self._is_planned(job.id)

    def _count_queued(self, before: Job | None, after: Job) -> None:
        if before is not None and isinstance(before.phase, Queued | Held):
            self.n_queued[before.spec.user] -= 1
        if isinstance(after.phase, Queued | Held):
            self.n_queued[after.spec.user] += 1

    def holding(self) -> Iterator[Job]:
        """The jobs whose workers hold slots."""
        return (self.jobs[job_id] for job_id in self._holding)

    def _book(self, job: Job) -> None:
        self.ledger.book(job.members, job.spec)
        if job.members:
            self._holding[job.id] = None
        else:
            self._holding.pop(job.id, None)

    # -- transitions ----------------------------------------------------------------------------

    def follow_trigger(self, reaction: Reaction, effects: Effects, *, cause: str) -> None:
        """Look up the reaction's trigger in the state table, and enter the next state."""
        job, trigger, purpose = reaction.job, reaction.trigger, reaction.purpose
        assert trigger is not None
        try:
            state = next_state(job.state, trigger)
        except UnlistedTransitionError as error:
            self._hold_after_internal_error(job, effects, bug=str(error))
            return
        if state is None or trigger is Trigger.PROGRESS:
            return
        if state is JobState.QUEUED and purpose is Purpose.RESIZE and not self._is_planned(job.id):
            purpose = Purpose.PREEMPT  # A newer plan withdrew its new size during the stop.
        reason = (
            with_lost_work(reaction.reason, job)
            if state in UNSUCCESSFUL_STATES
            else reaction.reason
        )
        allocation, gone = reaction.allocation, reaction.gone
        context = TransitionContext(effects.now, reason, purpose, allocation, self._backoff_s, gone)
        self._enter(job, state, context=context, cause=cause, effects=effects)
        if gone:
            self._replan_without(job, gone, effects=effects)

    def _replan_without(self, before: Job, gone: frozenset[int], *, effects: Effects) -> None:
        """Free the slots of dead workers. The next round replaces the workers."""
        workers = zip(before.numbers, before.members, strict=True)
        job = self.jobs[before.id]
        self.desired.lose(job, [slot for number, slot in workers if number in gone])
        self.wants_round = True
        self.reconcile(job.id, effects)

    def _enter(
        self,
        before: Job,
        state: JobState,
        *,
        context: TransitionContext,
        cause: str,
        effects: Effects,
    ) -> None:
        """Enter a state: store the job and a history row, and collect the commands."""
        try:
            job = enter(before, state, context=context)
        except Exception as error:
            if cause == BUG:
                raise
            effects.errors.append(error)
            self._hold_after_internal_error(before, effects, bug=internal_error_message(error))
            return
        self.put(job, effects)
        row = Transition(
            context.now, job.id, job.attempt, before.state, job.state, cause, context.reason
        )
        effects.transitions.append(row)
        effects.commands += commands_after(before, job)
        self._settle(before, job, effects=effects)

    def _settle(self, before: Job, job: Job, *, effects: Effects) -> None:
        """Book what a transition changed, and start the steps that it made possible."""
        is_changed = before.members != job.members
        if is_changed:
            self.ledger.unbook(before.members, job.spec)
            self._book(job)
        if not _keeps_its_plan(before, job):
            self.wants_round |= self.desired.drop(job)
        if isinstance(job.phase, Ended):
            self._finish(job, effects)
        self.wants_round |= isinstance(job.phase, Queued | Held | Ended)
        self.reconcile(job.id, effects)
        if is_changed and before.is_active:
            self.reconcile_waiting(effects)

    def _finish(self, job: Job, effects: Effects) -> None:
        self.outcomes[job.id] = job.state
        del self.jobs[job.id]
        self._limited.discard(job.id)
        self._depending.discard(job.id)
        for needed in job.spec.dependencies:
            dependents = self._dependents.get(needed, {})
            dependents.pop(job.id, None)
            if not dependents:
                self._dependents.pop(needed, None)
        for job_id in list(self._dependents.get(job.id, ())):
            self._end_if_it_can_never_start(job_id, effects)

    def _index(self, job: Job) -> None:
        if job.spec.array_limit:
            self._limited.add(job.id)
        if job.spec.dependencies:
            self._depending.add(job.id)
        for needed in job.spec.dependencies:
            self._dependents.setdefault(needed, {})[job.id] = None

    def _end_if_it_can_never_start(self, job_id: JobId, effects: Effects) -> None:
        """End a job that waits for jobs that have ended in another way than it needs."""
        job = self.jobs.get(job_id)
        end = None if job is None or job.is_active else blocking_end(job.spec, self.outcomes)
        if job is not None and end is not None:
            trigger, reason = end
            self.follow_trigger(Reaction(job, trigger, reason), effects, cause="JobEnded")

    def _fail_to_react(
        self, job: Job, event: JobEvent, *, effects: Effects, error: Exception
    ) -> None:
        """Hold a job whose reaction to an event fails. Exits count even so: a job that stops after
        such an error is held when all its workers have exited."""
        effects.errors.append(error)
        bug, phase = internal_error_message(error), job.phase
        if not isinstance(event, WorkersExited | WorkersLost) or not isinstance(phase, Stopping):
            self._hold_or_note(job, effects, bug=bug)
        elif event.attempt == job.attempt:
            gone = event.codes if isinstance(event, WorkersExited) else event.workers
            job = replace(
                job, phase=replace(phase, exits={**phase.exits, **dict.fromkeys(gone, -1)})
            )
            if isinstance(job.phase, Stopping) and job.phase.exits.keys() >= set(job.numbers):
                context = TransitionContext(effects.now, f"{HELD_AFTER_BUG}: {bug}", Purpose.HOLD)
                self._enter(job, JobState.HELD, context=context, cause=BUG, effects=effects)
            else:
                self.put(job, effects)

    def _hold_or_note(self, job: Job, effects: Effects, *, bug: str) -> None:
        """Hold the job. A job whose workers are being stopped continues to stop."""
        if isinstance(job.phase, Stopping) and job.phase.insists_at_s is None:
            self._note(job, effects, cause=BUG, reason=f"a bug in rota: {bug}")
        else:
            self._hold_after_internal_error(job, effects, bug=bug)

    def _hold_after_internal_error(self, job: Job, effects: Effects, *, bug: str) -> None:
        """Hold the job after an unlisted transition or another bug; stop its workers first, if it
        has any."""
        context = TransitionContext(effects.now, f"{HELD_AFTER_BUG}: {bug}", Purpose.HOLD)
        if not isinstance(job.phase, ActivePhase):
            self._enter(job, JobState.HELD, context=context, cause=BUG, effects=effects)
            return
        # Forget the recorded exits: the stop command makes the engine report them again.
        unheard = replace(job, hears=False, phase=replace(job.phase, exits={}))
        self._enter(unheard, JobState.STOPPING, context=context, cause=BUG, effects=effects)
        if isinstance(job.phase, Stopping) and job.phase.insists_at_s is None:
            effects.commands.append(stop_command(unheard))

    # -- reconciliation -------------------------------------------------------------------------

    def adopt(self, changed: Sequence[JobId], effects: Effects) -> None:
        """Reconcile the jobs whose plan has changed."""
        planned = self.desired.allocations
        preemptors = Preemptors(changed, planned, jobs=self.jobs, nodes=self.nodes)
        for job_id in changed:
            self.reconcile(job_id, effects, preemptors=preemptors)

    def reconcile(
        self, job_id: JobId, effects: Effects, *, preemptors: Preemptors | None = None
    ) -> None:
        """Take the next step from what the job holds to its plan, if a step is possible now."""
        job = self.jobs.get(job_id)
        self._waiting.pop(job_id, None)
        if job is None:
            return
        wanted = self.desired.allocations.get(job_id, ())
        match job.phase:
            case Queued() if wanted:
                self._start(job, wanted, effects=effects)
            case Starting() | Running() if not wanted:
                reason = preemptors.reason(job) if preemptors else "preempted"
                self._stop(job, Purpose.PREEMPT, effects=effects, reason=reason)
            case Starting(allocation=held) | Running(allocation=held, joining=()) if wanted != held:
                reason = (
                    preemptors.resize_reason(job, wanted)
                    if preemptors
                    else resize_text(job, wanted)
                )
                self._resize(job, wanted, effects=effects, reason=reason)
            case _:
                pass

    def reconcile_waiting(self, effects: Effects) -> None:
        """Reconcile the jobs that wait for slots, because slots may have become free."""
        for job_id in list(self._waiting):
            self.reconcile(job_id, effects)

    def _is_planned(self, job_id: JobId) -> bool:
        return job_id in self.desired.allocations

    def _start(self, job: Job, wanted: Allocation, *, effects: Effects) -> None:
        if self.ledger.has_room(wanted, job.spec, nodes=self.nodes):
            start = Reaction(job, Trigger.START, allocation=wanted)
            self.follow_trigger(start, effects, cause="Plan")
        else:
            self._waiting[job.id] = None

    def _stop(self, job: Job, purpose: Purpose, *, effects: Effects, reason: str) -> None:
        self.follow_trigger(Reaction(job, Trigger.STOP, reason, purpose), effects, cause="Plan")

    def _resize(self, job: Job, wanted: Allocation, *, effects: Effects, reason: str) -> None:
        """Resize in place if the job supports it and the new slots are free; else stop the job to
        restart it."""
        joining = added_slots(job.allocation, wanted)
        units = job.spec.units_in(wanted)
        if units != job.units and (why := size_reason(job, units, now=effects.now)):
            reason = f"{resize_text(job, wanted)}: {why}"
        if not isinstance(job.phase, Running) or not job.spec.mode.resizes_in_place:
            self._stop(job, Purpose.RESIZE, effects=effects, reason=reason)
        elif job.phase.exits:
            pass  # The job is about to end by itself.
        elif self.ledger.has_room(joining, job.spec, nodes=self.nodes):
            resize = Reaction(job, Trigger.RESIZE, reason, allocation=wanted)
            self.follow_trigger(resize, effects, cause="Plan")
        elif self.ledger.has_room_without(job.members, wanted, spec=job.spec, nodes=self.nodes):
            # Only the job itself holds the slots that it needs.
            self._stop(job, Purpose.RESIZE, effects=effects, reason=reason)
        else:
            self._waiting[job.id] = None


def _keeps_its_plan(before: Job, job: Job) -> bool:
    """Whether a job keeps its planned slots: a job that stops only to start again may already have
    new ones."""
    match job.phase:
        case Queued(since_s=since_s, not_before_s=until_s):
            phase = before.phase
            may_return = isinstance(phase, Stopping) and phase.purpose in RESUMABLE_PURPOSES
            return may_return and until_s <= since_s
        case Stopping(purpose=purpose):
            return purpose in (Purpose.RESIZE, Purpose.PREEMPT)
        case phase:
            return isinstance(phase, Starting | Running)
