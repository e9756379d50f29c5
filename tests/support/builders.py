"""Words to tell scenarios with: jobs, clusters, and a lab in which facts are told by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.allocation import Allocation, Slot
from rota.core.model.commands import Command
from rota.core.model.effects import Effects
from rota.core.model.events import (
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    MembershipChanged,
    NodeDrained,
    NodeLost,
    NodeSeen,
    ProgressReported,
    TimerFired,
    WorkersExited,
    WorkersStarted,
)
from rota.core.model.job import Job, JobId, JobSpec, Mode
from rota.core.model.node import Node, NodeId
from rota.core.scheduling.plan import AllocationChange, Plan
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.policies.registry import parse
from rota.simulator.cluster_spec import parse_cluster
from rota.store.interface import Batch
from rota.store.memory import MemoryStore

QUICK = Rules(min_runtime_s=0.0, restart_cost_s=0.0, is_guarded=False, backoff_s=10.0)
"""Rules under which nothing holds a change back."""


def cluster(text: str) -> tuple[Node, ...]:
    """`2x8 A100`: two nodes, node-01 and node-02, with eight GPUs each."""
    return parse_cluster(text.replace(", ", ",").replace(" ", ":"))


def job(name: str = "job", gpus: int | str = 1, **more: object) -> JobSpec:
    """A job of one-GPU workers: on so many GPUs, or on any number of a range such as `2..4`.

    Everything else is as `JobSpec` calls it; `gpus_per_worker=0` is a job without GPUs.
    """
    least, _, most = str(gpus).partition("..")
    spec = JobSpec(
        name=name,
        min_workers=int(least),
        max_workers=int(most or least),
        requested_workers=int(least),
        epochs=10.0,
    )
    if "gpus_per_worker" in more:
        more["gpus"] = more.pop("gpus_per_worker")
    return replace(spec, **more)  # pyright: ignore[reportArgumentType]


def live_job(name: str = "job", gpus: int | str = 1, **more: object) -> JobSpec:
    return job(name, gpus, mode=Mode.LIVE, **more)


def slots(*places: str) -> Allocation:
    """`1:0` is GPU 0 of node-01; `1:0,1` is GPUs 0 and 1 of it; `1:` is the node alone."""
    found: list[Slot] = []
    for place in places:
        node, _, gpus = place.partition(":")
        indices = tuple(int(index) for index in gpus.split(",") if index)
        found.append(Slot(NodeId(f"node-{int(node):02}"), indices))
    return tuple(found)


def applied(
    before: Mapping[JobId, Allocation], changes: Iterable[AllocationChange]
) -> dict[JobId, Allocation]:
    """The allocations after these changes."""
    after = {**before, **{change.job_id: change.after for change in changes}}
    return {job_id: allocation for job_id, allocation in after.items() if allocation}


class Lab:
    """A kernel with its store, told by hand what happens. Every deed returns the commands that
    follow from it. The clock stands still unless it is told to go on."""

    def __init__(
        self, nodes: Iterable[Node] = (), policy: str = "fifo", rules: Rules = QUICK
    ) -> None:
        self.now = 0.0
        self.store = MemoryStore()
        self.kernel = Kernel(rules)
        self.policy = parse(policy)
        for node in nodes:
            self.tell(NodeSeen(node))

    # -- what users do --------------------------------------------------------------------------

    def submit(self, *specs: JobSpec, is_held: bool = False) -> list[Command]:
        """The job's id is its name."""
        return [
            command
            for spec in specs
            for command in self.tell(JobSubmitted(JobId(spec.name), spec, is_held=is_held))
        ]

    def cancel(self, name: str) -> list[Command]:
        return self.tell(JobCancelled(JobId(name), "owner"))

    def hold(self, name: str) -> list[Command]:
        return self.tell(JobHeld(JobId(name), "owner"))

    def release(self, name: str) -> list[Command]:
        return self.tell(JobReleased(JobId(name), "owner"))

    # -- what the engine reports ----------------------------------------------------------------

    def started(self, name: str, workers: Iterable[int] | None = None) -> list[Command]:
        """All workers of the newest attempt, or some of them."""
        numbers = self.job(name).numbers if workers is None else workers
        attempt = self.job(name).attempt
        return self.tell(WorkersStarted(JobId(name), attempt, frozenset(numbers)))

    def exited(
        self, name: str, code: int = 0, workers: Iterable[int] | None = None, **words: Any
    ) -> list[Command]:
        """`words` are the event's own: `reason`, `finding`, `is_retriable`."""
        numbers = self.job(name).numbers if workers is None else workers
        codes = dict.fromkeys(numbers, code)
        return self.tell(WorkersExited(JobId(name), self.job(name).attempt, codes, **words))

    def progress(
        self, name: str, epochs: float, epoch_s: float | None = None, **more: Any
    ) -> list[Command]:
        """`more` are the event's own: `saved`, `hears`, `epochs_total`, `memory_bytes`."""
        report = ProgressReported(JobId(name), self.job(name).attempt, epochs, epoch_s, **more)
        return self.tell(report)

    def switched(self, name: str) -> list[Command]:
        job = self.job(name)
        return self.tell(MembershipChanged(job.id, job.attempt, job.generation))

    def lose(self, node: int) -> list[Command]:
        return self.tell(NodeLost(NodeId(f"node-{node:02}")))

    def drain(self, node: int) -> list[Command]:
        return self.tell(NodeDrained(NodeId(f"node-{node:02}")))

    # -- time, rounds, crashes ------------------------------------------------------------------

    def wait(self, seconds: float) -> list[Command]:
        """Let time pass. A timer that falls due in it fires."""
        until_s = self.now + seconds
        commands: list[Command] = []
        while (due_s := self.kernel.next_timer_s()) <= until_s:
            self.now = max(self.now, due_s)
            commands += self.tell(TimerFired())
        self.now = until_s
        return commands

    def decide(self) -> Plan:
        return decide(self.kernel.view(self.now), self.policy)

    def peek(self) -> Plan:
        """The plan of a round now, without running the round."""
        wants_round = self.kernel.wants_round
        plan = self.decide()
        if wants_round:
            self.kernel.want_round()
        return plan

    def commit(self, plan: Plan) -> list[Command]:
        return self._written(self.kernel.commit(plan, self.now))

    def round(self) -> list[Command]:
        """Run a round if the kernel wants one, as the daemon does."""
        return self.commit(self.decide()) if self.kernel.wants_round else []

    def run(self, *specs: JobSpec) -> None:
        """Submit jobs and see them running."""
        self.submit(*specs)
        self.round()
        for spec in specs:
            self.started(spec.name)

    def tell(self, event: Event) -> list[Command]:
        return self._written(self.kernel.apply(event, self.now))

    def recover(self) -> list[Command]:
        """The daemon is gone; a new one reads what was written down."""
        self.kernel = Kernel(self.kernel.rules)
        saved = self.store.load()
        effects = self.kernel.recover(
            saved.jobs, saved.nodes, outcomes=saved.outcomes, now=self.now
        )
        return self._written(effects)

    def _written(self, effects: Effects) -> list[Command]:
        self.store.write(Batch(effects)).result()
        return effects.commands

    # -- what is to be seen ---------------------------------------------------------------------

    def job(self, name: str) -> Job:
        found = self.kernel.job(JobId(name))
        assert found is not None, f"{name} is over: {self.story(name)}"
        return found

    def state(self, name: str) -> JobState:
        found = self.kernel.job(JobId(name)) or self.store.job(JobId(name))
        assert found is not None
        return found.state

    def story(self, name: str) -> list[JobState]:
        return [entry.transition.after for entry in self.store.story(JobId(name))]

    def reason(self, name: str) -> str:
        """The newest word in the job's story."""
        return self.store.story(JobId(name))[-1].transition.reason
