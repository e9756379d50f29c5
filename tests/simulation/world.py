"""One run of the production kernel with injected faults.

Everything comes from the seed. The invariants are checked after every step and at the end.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects, Transition
from rota.core.model.events import (
    Event,
    JobCancelled,
    JobSubmitted,
    NodeLost,
    NodeSeen,
    TimerFired,
)
from rota.core.model.job import Ended, JobId
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.engines.virtual.engine import VirtualEngine
from rota.engines.virtual.run import VirtualWork
from rota.policies.registry import POLICIES, parse
from rota.store.interface import Batch
from rota.store.memory import MemoryStore
from tests.simulation.faults import FaultyEngine
from tests.simulation.workload import QUIET_AFTER_S, scenario
from tests.support.invariants import (
    Orders,
    check_booked,
    check_engine,
    check_kernel,
    check_story,
)

STEPS_MAX = 20_000
"""More steps than any run needs: a run that exceeds this number loops."""


class CrashedError(Exception):
    """The daemon was killed."""


class World:
    """The kernel with its store, engine, users and injected faults."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scenario = scenario(self.random)
        self.policy: Policy = parse(self.random.choice(list(POLICIES)))
        self.rules = Rules(
            round_interval_s=self.random.choice([0.0, 5.0]),
            is_guarded=self.random.random() < 0.7,
            backoff_s=self.random.choice([1.0, 10.0]),
        )
        self.now = 0.0
        self.n_events = self.n_crashes = 0
        self.store = MemoryStore()
        self.kernel = Kernel(self.rules)
        self.engine = FaultyEngine(VirtualEngine(self._work_of), self.scenario.nodes, self.random)
        self._crash_chance = self.random.choice([0.0, 0.02, 0.2, 1.0])
        """The probability of a crash for each batch of commands; 1 means at every batch."""
        self._requests = list(reversed(self.scenario.requests))
        self._acknowledged: set[JobId] = set()
        self._cancelled: set[JobId] = set()
        self._faults = sorted(self._some_faults(), key=lambda fault: -fault[0])
        self._plan: tuple[float, Plan] | None = None
        """A decision in progress, and when it completes."""
        self._next_round_s = -math.inf
        self._orders = Orders()

    def run(self) -> None:
        for node in self.scenario.nodes.values():
            self._with_retries(NodeSeen(node))
        for _ in range(STEPS_MAX):
            now = self._next_moment()
            if now == math.inf:
                break
            self.now = max(self.now, now)
            with self._survived():
                self._step()
            self._check()
        else:
            raise AssertionError(f"still busy at {self.now} s: {dict(self.kernel.jobs)}")
        self._check_the_end()

    # -- the daemon -----------------------------------------------------------------------------

    def _next_moment(self) -> float:
        times = [self.engine.next_s(), max(self.now, self.kernel.next_timer_s())]
        times += [stack[-1][0] for stack in (self._requests, self._faults) if stack]
        if self._plan is not None:
            times.append(self._plan[0])
        elif self.kernel.wants_round:
            times.append(self._next_round_s)
        return min(times)

    def _step(self) -> None:
        while self._faults and self._faults[-1][0] <= self.now:
            self._faults.pop()[1](self.now)
        while self._requests and self._requests[-1][0] <= self.now:
            self._serve()
        for event in self.engine.due(self.now):
            self._tell(event)
        if self.kernel.next_timer_s() <= self.now:
            self._tell(TimerFired())
        if self._plan is not None and self._plan[0] <= self.now:
            plan, self._plan = self._plan[1], None
            self._carry_out(self.kernel.commit(plan, self.now))
        if self._plan is None and self.kernel.wants_round and self._next_round_s <= self.now:
            self._round()

    def _serve(self) -> None:
        """A user repeats a request after a crash until it is answered."""
        request = self._requests[-1][1]
        if isinstance(request, JobSubmitted):
            request = self._without_ended_dependencies(request)
        self._tell(request)
        self._requests.pop()
        if isinstance(request, JobSubmitted):
            self._acknowledged.add(request.job_id)
        if isinstance(request, JobCancelled):
            self._cancelled.add(request.job_id)

    def _without_ended_dependencies(self, request: JobSubmitted) -> JobSubmitted:
        """The request as the daemon passes it on. The daemon leaves out dependencies that have
        succeeded and refuses those that have failed; the user then leaves these out, too."""
        ended = self._outcomes()
        after = tuple(each for each in request.spec.after if each not in ended)
        return replace(request, spec=replace(request.spec, after=after))

    def _round(self) -> None:
        """A decision takes time, and events may arrive before it completes."""
        view = self.kernel.view(self.now)
        plan = decide(view, self.policy)
        assert not plan.violations, plan.violations
        thought_s = self.random.choice([0.0, 0.0, self.random.uniform(0, 5)])
        self._next_round_s = self.now + self.rules.round_interval_s
        if thought_s:
            self._plan = (self.now + thought_s, plan)
        else:
            self._carry_out(self.kernel.commit(plan, self.now))

    def _tell(self, event: Event) -> None:
        self.n_events += 1
        self._carry_out(self.kernel.apply(event, self.now))

    def _carry_out(self, effects: Effects) -> None:
        is_doomed = bool(effects.commands) and self.random.random() < self._crash_chance
        arrives = self.random.randint(-1, len(effects.commands)) if is_doomed else math.inf
        if arrives < 0:
            raise CrashedError
        self.store.write(Batch(effects)).result()
        for place, command in enumerate(effects.commands):
            if place >= arrives:
                raise CrashedError
            self._orders.check(command, self.scenario.specs[command.job_id])
            self.engine.apply(command, self.now)
        if is_doomed:
            raise CrashedError

    # -- its death and what comes after ---------------------------------------------------------

    @contextmanager
    def _survived(self) -> Iterator[None]:
        try:
            yield
        except CrashedError:
            while not self._has_recovered():
                pass

    def _has_recovered(self) -> bool:
        """Some time later another daemon starts; it may also be killed."""
        self.n_crashes += 1
        self.now += self.random.choice([0.0, self.random.uniform(0, 60)])
        self.engine.crash(self.now)
        self._plan, self._next_round_s = None, -math.inf
        self.kernel = Kernel(self.rules)
        crash_chance, self._crash_chance = self._crash_chance, min(0.3, self._crash_chance)
        try:
            self._read_the_truth()
        except CrashedError:
            return False
        finally:
            self._crash_chance = crash_chance
        return True

    def _read_the_truth(self) -> None:
        saved, alive = self.store.load(), self.engine.nodes
        effects = self.kernel.recover(
            saved.jobs, saved.nodes, outcomes=saved.outcomes, now=self.now
        )
        self._carry_out(effects)
        known = [node.id for node in saved.nodes]
        for node_id in known:
            if node_id not in alive:
                self._tell(NodeLost(node_id))
        for node_id, node in alive.items():
            if node_id not in known:
                self._tell(NodeSeen(node))
        for event in self.engine.engine.found():
            self._tell(event)

    def _with_retries(self, event: Event) -> None:
        with self._survived():
            self._tell(event)

    # -- work and faults ------------------------------------------------------------------------

    def _work_of(self, job_id: JobId) -> VirtualWork:
        spec = self.scenario.specs[job_id]
        seconds = Random(job_id).uniform(20, 600)
        return VirtualWork(spec.epochs, lambda allocation: seconds / len(allocation) ** 0.8)

    def _some_faults(self) -> Iterator[tuple[float, Callable[[float], None]]]:
        random, engine = self.random, self.engine
        for _ in range(random.randint(2, 12)):
            yield random.uniform(0, QUIET_AFTER_S - 200), engine.end_workers
        for _ in range(random.randint(1, 3)):
            yield random.uniform(0, QUIET_AFTER_S - 200), engine.lose_node
            yield random.uniform(0, QUIET_AFTER_S - 200), engine.reboot_node
        for at_s in (random.uniform(500, 2_000), QUIET_AFTER_S):
            for node in self.scenario.nodes.values():
                yield at_s, lambda now, node=node: engine.bring_back(node, now)

    # -- what is checked ------------------------------------------------------------------------

    def _check(self) -> None:
        check_kernel(self.kernel)
        assert self.kernel.ledger.is_sound(self.kernel.nodes), "overbooked"
        running = self.engine.engine.running()
        check_engine(running, self.scenario.specs, self.scenario.nodes)
        check_booked(self.kernel, running)

    def story(self) -> list[Transition]:
        return [entry.transition for entry in self.store.story(limit=sys.maxsize)]

    def _outcomes(self) -> dict[JobId, JobState]:
        """The final states of all jobs that have ended, as the store has them."""
        jobs = self.store.jobs(limit=sys.maxsize).jobs
        return {job.id: job.state for job in jobs if isinstance(job.phase, Ended)}

    def _check_the_end(self) -> None:
        """Every accepted job ended, and the recorded events explain its outcome."""
        story = self.story()
        check_story(story)
        specs, outcomes = self.scenario.specs, self._outcomes()
        assert self._acknowledged == specs.keys(), "not all jobs were accepted"
        assert not self.kernel.jobs, f"never ended: {dict(self.kernel.jobs)}"
        assert outcomes.keys() == specs.keys(), "a job was lost"
        assert not self.engine.engine.running(), "workers are left"
        assert not self.kernel.ledger.booked(), "GPUs are held"
        reasons = {row.job_id: row.reason for row in story}
        for job_id, outcome in outcomes.items():
            assert self._is_explained(job_id, outcome, reasons[job_id]), (job_id, reasons[job_id])
        assert len(self.scenario.nodes) >= 3
        assert len(specs) >= 20
        assert self.n_events >= 200, f"only {self.n_events} events"

    def _is_explained(self, job_id: JobId, outcome: JobState, reason: str) -> bool:
        spec, outcomes = self.scenario.specs[job_id], self._outcomes()
        if outcome is JobState.SUCCEEDED:
            return True
        if outcome is JobState.CANCELLED:
            return job_id in self._cancelled
        return (
            any(f"exit code {code}" in reason for code in self.engine.exit_codes)
            or (math.isfinite(spec.time_limit_s) and "time limit" in reason)
            or any(outcomes[needed] is not JobState.SUCCEEDED for needed in spec.after)
        )
