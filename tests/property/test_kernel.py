"""Invariants of the kernel for any sequence of events."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rota.core.estimation.virtual_time_loop import TimedEvent, VirtualTimeLoop
from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.reducer import new_job
from rota.core.lifecycle.states import JobState
from rota.core.model.allocation import Allocation, Slot
from rota.core.model.commands import AskToStop
from rota.core.model.effects import Effects
from rota.core.model.events import (
    Event,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobResized,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    NodeSeen,
    ProgressReported,
    TimerFired,
    WorkersSilent,
)
from rota.core.model.job import Estimate, GpuShare, JobId, JobSpec, Mode
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.model.units import GIB
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.slots import n_fitting
from rota.core.placement.wish import demand_of
from rota.core.scheduling.divide import divide
from rota.core.scheduling.plan import Plan, check, diff
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules, View
from rota.engines.virtual.engine import VirtualEngine
from rota.engines.virtual.run import Delays, VirtualWork
from rota.policies.registry import POLICIES, parse
from rota.store.interface import Batch
from rota.store.memory import MemoryStore
from rota.store.records import SavedState
from tests.support.builders import applied
from tests.support.invariants import (
    Orders,
    check_asking,
    check_booked,
    check_engine,
    check_kernel,
    check_saved,
    check_story,
)
from tests.support.seed_counts import count

NODE_IDS = [NodeId(f"n{number}") for number in range(4)]
ELASTIC = ["elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "afs-l"]
POLICY = st.sampled_from([*POLICIES, *ELASTIC])


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    """All kinds of jobs: ranges, several GPUs per worker, shares, no GPUs, GPU types and labels."""
    least = draw(st.sampled_from([1, 1, 2, 3]))
    most = least + draw(st.integers(0, 4))
    kind = draw(st.sampled_from(["gpu", "gpu", "gpu", "gpu", "wide", "share", "cpu"]))
    return JobSpec(
        name="job",
        priority=draw(st.sampled_from([0, 0, 1])),
        mode=draw(st.sampled_from([*Mode, Mode.LIVE, Mode.LIVE])),
        min_workers=least,
        max_workers=most,
        requested_workers=draw(st.integers(least, most)),
        gpus={"gpu": 1, "wide": 2, "share": 0, "cpu": 0}[kind],
        share=GpuShare(fraction=draw(st.sampled_from([0.25, 0.5, 1.0])))
        if kind == "share"
        else None,
        gpu_types=draw(st.sampled_from([(), (), ("A100",), ("V100", "A100")])),
        cpus=draw(st.sampled_from([0.0, 0.0, 1.5])),
        memory_bytes=draw(st.sampled_from([0, 0, 8 * GIB])),
        epochs=draw(st.sampled_from([1.0, 4.0])),
        estimate=draw(st.sampled_from([None, Estimate(100.0), Estimate(10.0)])),
        retries=draw(st.integers(0, 1)),
        time_limit_s=draw(st.sampled_from([float("inf"), float("inf"), 70.0])),
    )


@st.composite
def nodes(draw: st.DrawFn, node_id: NodeId) -> Node:
    gpu_type = draw(st.sampled_from(["A100", "A100", "A100", "V100"]))
    gpus = tuple(Gpu(index, gpu_type) for index in range(draw(st.sampled_from([4, 1, 2]))))
    if draw(st.booleans()):
        return Node(node_id, gpus)
    return Node(node_id, gpus, cpus=4.0, memory_bytes=32.0 * GIB, max_workers=3)


def work_of_all(seconds: float) -> Callable[[JobId], VirtualWork]:
    return lambda _: VirtualWork(4.0, lambda allocation: seconds / len(allocation))


class Lab(RuleBasedStateMachine):
    """Random users, nodes and times; the engine executes every command."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.specs: dict[JobId, JobSpec] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.orders = Orders()
        self.store = MemoryStore()
        self.kernel = Kernel(Rules())
        self.engine = VirtualEngine(work_of_all(100.0))
        self.is_heard = True

    @initialize(
        first=nodes(NODE_IDS[0]),
        second=nodes(NODE_IDS[1]),
        rules=st.builds(Rules, is_guarded=st.booleans(), min_runtime_s=st.just(10.0)),
        delays=st.sampled_from([Delays(), Delays(5.0, 10.0, 20.0)]),
        jobs=st.lists(specs(), min_size=2, max_size=4),
        is_heard=st.booleans(),
    )
    def open(
        self,
        first: Node,
        second: Node,
        rules: Rules,
        delays: Delays,
        jobs: list[JobSpec],
        is_heard: bool,
    ) -> None:
        """Some jobs already run. Programs may ignore a request to stop."""
        self.is_heard = is_heard
        self.kernel = Kernel(rules)
        self.engine.delays = delays
        self.see(first)
        self.see(second)
        for spec in jobs:
            self.add(spec)
        self.round("elastic-fifo")
        self.wait(10.0)

    # -- what happens ---------------------------------------------------------------------------

    @rule(spec=specs(), is_held=st.booleans(), data=st.data())
    def submit(self, spec: JobSpec, is_held: bool, data: st.DataObject) -> None:
        earlier = st.sampled_from([(), *((each,) for each in self.specs)])
        self.add(replace(spec, after=data.draw(earlier)), is_held=is_held)

    @rule(spec=specs(), policy=POLICY)
    def submit_and_decide(self, spec: JobSpec, policy: str) -> None:
        """The most frequent case: another job must be preempted at once."""
        self.add(replace(spec, priority=1))
        self.round(policy)

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), request=st.sampled_from([JobCancelled, JobHeld, JobReleased]))
    def ask(self, data: st.DataObject, request: Callable[[JobId], Event]) -> None:
        self.tell(request(data.draw(st.sampled_from(sorted(self.specs)))))

    @rule(data=st.data(), node_id=st.sampled_from(NODE_IDS))
    def add_node(self, data: st.DataObject, node_id: NodeId) -> None:
        if node_id in self.nodes:
            self.see(self.nodes[node_id])
        else:
            self.see(data.draw(nodes(node_id)))

    @rule(node_id=st.sampled_from(NODE_IDS))
    def drain(self, node_id: NodeId) -> None:
        self.tell(NodeDrained(node_id))

    @rule(node_id=st.sampled_from(NODE_IDS))
    def cordon(self, node_id: NodeId) -> None:
        """Until it is added again. Its jobs keep running."""
        before = {job.id: job.state for job in self.kernel.jobs.values()}
        if node_id in self.kernel.nodes:
            self.tell(NodeSeen(replace(self.kernel.nodes[node_id], is_cordoned=True)))
        assert {job.id: job.state for job in self.kernel.jobs.values()} == before

    @rule(node_id=st.sampled_from(NODE_IDS))
    def miss_gpus(self, node_id: NodeId) -> None:
        """Until it is added once more, the node does not see the GPUs that running jobs hold."""
        before = {job.id: job.state for job in self.kernel.jobs.values()}
        if node_id in self.kernel.nodes:
            jobs = [job for job in self.kernel.jobs.values() if job.state is JobState.RUNNING]
            slots = [slot for job in jobs for slot in job.members if slot.node == node_id]
            missing = frozenset(index for slot in slots for index in slot.gpus)
            node = self.kernel.nodes[node_id]
            missing &= {gpu.index for gpu in node.gpus}
            self.tell(NodeSeen(replace(node, missing_gpus=missing)))
        assert {job.id: job.state for job in self.kernel.jobs.values()} == before

    @rule(node_id=st.sampled_from(NODE_IDS))
    def lose(self, node_id: NodeId) -> None:
        self.nodes.pop(node_id, None)
        self.engine.lose_node(node_id, self.now)
        self.tell(NodeLost(node_id))

    @rule(code=st.sampled_from([0, 1, 137]), data=st.data())
    def end_workers(self, code: int, data: st.DataObject) -> None:
        running = self.engine.running()
        if running:
            fence = data.draw(st.sampled_from(sorted(running)))
            some = data.draw(st.sets(st.sampled_from(sorted(running[fence])), min_size=1))
            self.engine.end_workers(fence, dict.fromkeys(some, code), now=self.now)

    @precondition(lambda self: self.engine.running())
    @rule(data=st.data(), pause_s=st.sampled_from([0.0, 1.0]))
    def kill_one(self, data: st.DataObject, pause_s: float) -> None:
        """A worker dies at any time; the event arrives at once or a moment later."""
        fence = data.draw(st.sampled_from(sorted(self.engine.running())))
        workers = sorted(self.engine.running()[fence])
        if workers:
            dead = data.draw(st.sampled_from(workers))
            self.engine.end_workers(fence, {dead: 137}, now=self.now)
            self.wait(pause_s)

    @precondition(lambda self: self.engine.running())
    @rule(data=st.data(), numbers=st.frozensets(st.integers(0, 8), max_size=3))
    def fall_silent(self, data: st.DataObject, numbers: frozenset[int]) -> None:
        fence = data.draw(st.sampled_from(sorted(self.engine.running())))
        self.tell(WorkersSilent(*fence, numbers, "says nothing"))

    @precondition(lambda self: self.kernel.jobs)
    @rule(data=st.data(), policy=POLICY, is_pinned=st.booleans())
    def resize(self, data: st.DataObject, policy: str, is_pinned: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.kernel.jobs)))
        spec = self.specs[job_id]
        workers = data.draw(st.integers(spec.min_workers - 1, spec.max_workers + 1))
        self.tell(JobResized(job_id, workers if is_pinned else None))
        self.round(policy)

    @precondition(lambda self: self.kernel.jobs)
    @rule(data=st.data(), edited=specs(), policy=POLICY, is_round=st.booleans())
    def edit(self, data: st.DataObject, edited: JobSpec, policy: str, is_round: bool) -> None:
        """The owner changes what the job may use, how long it may run and how it is ranked."""
        job_id = data.draw(st.sampled_from(sorted(self.kernel.jobs)))
        before = self.kernel.jobs[job_id]
        event = JobEdited(
            job_id,
            priority=edited.priority,
            time_limit_s=edited.time_limit_s,
            retries=edited.retries,
            gpu_types=edited.gpu_types,
            cpus=edited.cpus,
            memory_bytes=edited.memory_bytes,
        )
        self.tell(event)
        job = self.kernel.jobs[job_id]
        assert (job.phase, job.members) == (before.phase, before.members)
        self.specs[job_id] = job.spec
        if is_round:
            self.round(policy)

    @precondition(lambda self: self.engine.running())
    @rule(data=st.data(), hears=st.booleans(), part=st.sampled_from([0.0, 0.3, 1.0]))
    def report(self, data: st.DataObject, hears: bool, part: float) -> None:
        """A program reports its progress, that it listens, and what it saved."""
        job_id, attempt = data.draw(st.sampled_from(sorted(self.engine.running())))
        job = self.kernel.job(job_id)
        done = min(job.epochs, job.epochs_done + part) if job else part
        saved = data.draw(st.sampled_from([None, 0.0, job.epochs_saved if job else 0.0, done]))
        self.tell(ProgressReported(job_id, attempt, done, 10.0, saved=saved, hears=hears))

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 100.0]))
    def wait(self, seconds: float) -> None:
        until_s = self.now + seconds
        while (due_s := min(self.engine.next_s(), self.kernel.next_timer_s())) <= until_s:
            self.now = max(self.now, due_s)
            for event in self.engine.due(self.now):
                self.tell(event)
            if self.kernel.next_timer_s() <= self.now:
                self.tell(TimerFired())
        self.now = until_s

    @rule(policy=POLICY)
    def round(self, policy: str) -> None:
        view = self.kernel.view(self.now)
        plan = decide(view, parse(policy))
        assert plan.violations == check(plan, view) == ()
        assert applied(view.planned, diff(view.planned, plan.allocations)) == dict(plan.allocations)
        assert decide(view, parse(policy)) == plan
        self.carry_out(self.kernel.commit(plan, self.now))

    @rule()
    def crash(self) -> None:
        """A recovered kernel has the same bookings and records nothing new."""
        before = self.kernel
        self.kernel = Kernel(before.rules)
        saved = self.store.load()
        effects = self.kernel.recover(
            saved.jobs, saved.nodes, outcomes=saved.outcomes, now=self.now
        )
        assert self.kernel.jobs == before.jobs
        assert self.kernel.nodes == before.nodes
        assert self.kernel.ledger.booked() == before.ledger.booked()
        self.carry_out(effects)

    @precondition(lambda self: self.kernel.jobs)
    @rule(data=st.data(), policy=st.sampled_from(ELASTIC), is_crash=st.booleans())
    def end_one_and_grow(self, data: st.DataObject, policy: str, is_crash: bool) -> None:
        """A job leaves, and other jobs take over its slots."""
        self.tell(JobCancelled(data.draw(st.sampled_from(sorted(self.kernel.jobs)))))
        self.wait(10.0)
        self.round(policy)
        if is_crash:
            self.crash()

    def add(self, spec: JobSpec, *, is_held: bool = False) -> None:
        job_id = JobId(f"job-{len(self.specs):02}")
        self.specs[job_id] = spec
        self.tell(JobSubmitted(job_id, spec, is_held=is_held))

    def see(self, node: Node) -> None:
        self.nodes[node.id] = node
        self.engine.bring_back_node(node.id)
        self.tell(NodeSeen(node))

    def tell(self, event: Event) -> None:
        self.carry_out(self.kernel.apply(event, self.now))

    def carry_out(self, effects: Effects) -> None:
        self.store.write(Batch(effects)).result()
        for command in effects.commands:
            self.orders.check(command, self.specs[command.job_id])
            if self.is_heard or not isinstance(command, AskToStop):
                self.engine.apply(command, self.now)

    # -- what holds -----------------------------------------------------------------------------

    @invariant()
    def nothing_is_overbooked(self) -> None:
        check_kernel(self.kernel)
        check_engine(self.engine.running(), self.specs, self.nodes)
        check_booked(self.kernel, self.engine.running())

    @invariant()
    def nobody_is_asked_for_ever(self) -> None:
        check_asking(self.kernel, self.now)

    @invariant()
    def nothing_is_saved_that_was_not_done(self) -> None:
        check_saved(self.kernel)

    @invariant()
    def terminal_is_final(self) -> None:
        check_story(entry.transition for entry in self.store.story(limit=sys.maxsize))

    def teardown(self) -> None:
        """After any events, all jobs end when all nodes are open and time passes."""
        for job_id in self.specs:
            self.tell(JobCancelled(job_id))
        self.wait(1_000.0)
        assert not self.kernel.jobs
        assert not self.engine.running()
        assert not self.kernel.ledger.booked()


TestLab: Any = Lab.TestCase
TestLab.settings = settings(
    max_examples=count(2_000), stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)


# -- whole workloads ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    nodes: tuple[Node, ...]
    arrivals: tuple[TimedEvent, ...]


def fits(spec: JobSpec, cluster: tuple[Node, ...]) -> bool:
    capacity = ClusterCapacity(cluster)
    job = new_job(JobSubmitted(JobId("job"), spec), 0.0, known=None)
    types = (spec.gpu_types or tuple(capacity.gpus)) if spec.uses_gpus else ("",)
    rooms = (
        n_fitting(capacity, demand) for demand in (demand_of(job, gpu_type) for gpu_type in types)
    )
    return any(room >= spec.min_workers for room in rooms)


@st.composite
def workloads(draw: st.DrawFn, is_plain: bool = False) -> Workload:
    """Jobs that the cluster, empty, would hold. In plain ones each worker holds one GPU, and
    nothing but GPUs is short."""
    cluster = tuple(draw(nodes(node_id)) for node_id in NODE_IDS[: draw(st.integers(1, 4))])
    lasting = specs().map(lambda spec: replace(spec, time_limit_s=float("inf")))
    if is_plain:
        cluster = tuple(Node(node.id, node.gpus) for node in cluster)
        lasting = lasting.map(lambda spec: replace(spec, gpus=1, share=None))
    found = draw(st.lists(lasting.filter(lambda spec: fits(spec, cluster)), max_size=12))
    times = draw(st.lists(st.integers(0, 300), min_size=len(found), max_size=len(found)))
    arrivals = [(0.0, NodeSeen(node)) for node in cluster]
    arrivals += [
        (float(at_s), JobSubmitted(JobId(f"job-{place:02}"), spec))
        for place, (at_s, spec) in enumerate(zip(sorted(times), found, strict=True))
    ]
    return Workload(cluster, tuple(arrivals))


def run(workload: Workload, policy: str, rules: Rules) -> SavedState:
    store = MemoryStore()

    def record(_: float, effects: Effects) -> None:
        store.write(Batch(effects)).result()

    replay = VirtualTimeLoop(
        Kernel(rules),
        VirtualEngine(work_of_all(200.0), Delays(3.0, 2.0, 1.0)),
        decide=lambda view: decide(view, parse(policy)),
        record=record,
    )
    replay.run(workload.arrivals, until_s=1e6)
    return store.load()


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(workload=workloads())
def test_no_job_starves_under_fifo(workload: Workload) -> None:
    saved = run(workload, "fifo", Rules())
    assert not saved.jobs
    assert set(saved.outcomes.values()) <= {JobState.SUCCEEDED}


@pytest.mark.parametrize("policy", POLICIES)
@settings(
    max_examples=count(200),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(workload=workloads())
def test_every_job_ends_under_every_policy(policy: str, workload: Workload) -> None:
    saved = run(workload, policy, Rules(is_guarded=False))
    assert not saved.jobs
    assert set(saved.outcomes.values()) <= {JobState.SUCCEEDED}


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf"])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(workload=workloads(is_plain=True))
def test_no_usable_gpu_stays_free(policy: str, workload: Workload) -> None:
    """Work-conserving: after a round without the guard, no waiting job could start on the GPUs
    left of its type, and no running job could grow on them.

    With resources other than GPUs, three tries to place the targets need not find the best.
    """
    kernel = Kernel(Rules(is_guarded=False))
    for at_s, event in workload.arrivals:
        kernel.apply(event, at_s)
    view = kernel.view(300.0)
    plan = decide(view, parse(policy))
    left = what_is_left(view, plan)
    for pool in divide(view).pools:
        for job in pool.jobs if pool.gpu_type else ():
            held = len(plan.allocations.get(job.id, ()))
            demand = demand_of(job, pool.gpu_type)
            room = n_fitting(left, demand)
            wanted = 1 if held else job.spec.min_workers
            assert held == job.spec.max_workers or room < wanted, (job, room)


def what_is_left(view: View, plan: Plan) -> ClusterCapacity:
    left = ClusterCapacity(view.nodes.values())
    for job_id, allocation in plan.allocations.items():
        left.take(allocation, demand_of(view.jobs[job_id], plan.gpu_types[job_id]))
    return left


# -- values -------------------------------------------------------------------------------------

ALLOCATIONS = st.dictionaries(
    st.sampled_from([JobId(name) for name in "abcdef"]),
    st.lists(st.builds(lambda n: Slot(NodeId("n"), (n,)), st.integers(0, 5)), min_size=1).map(
        tuple
    ),
)


@given(before=ALLOCATIONS, after=ALLOCATIONS)
def test_the_difference_applied_gives_the_plan(
    before: dict[JobId, Allocation], after: dict[JobId, Allocation]
) -> None:
    changes = diff(before, after)
    assert applied(before, changes) == after
    assert all(change.before != change.after for change in changes)
    assert diff(after, after) == ()
