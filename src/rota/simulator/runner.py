"""Runs a workload through the production kernel in virtual time, and keeps what happened."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from rota.core.events import JobSubmitted, NodeSeen
from rota.core.kernel import Kernel
from rota.core.model import JobId, Mode, Node
from rota.core.plan import Plan
from rota.core.policy import Policy
from rota.core.replay import Arrival, Replay
from rota.core.round import decide
from rota.core.view import Rules, View
from rota.engines.fake import Delays, FakeEngine, Work
from rota.errors import PATH, PolicyError, shown
from rota.policies.registry import describe
from rota.simulator.alone import Alone
from rota.simulator.recorder import Recorder
from rota.simulator.results import Run
from rota.simulator.workload import Workload

PATIENCE = 100
"""How many times the length of the longest job may pass without the end of any job."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run it. Every start costs `restart_cost_s`, the first one, too."""

    restart_cost_s: float = 30.0
    round_s: float = 0.0
    min_runtime_s: float = 60.0
    guard: bool = True
    record_tenures: bool = False

    @property
    def rules(self) -> Rules:
        return Rules(
            round_interval_s=self.round_s,
            min_runtime_s=self.min_runtime_s,
            restart_cost_s=self.restart_cost_s,
            is_guarded=self.guard,
        )


def simulate(
    workload: Workload,
    nodes: Sequence[Node],
    *,
    policy: Policy,
    options: Options,
    progress: Callable[[float], None],
) -> Run:
    """One workload under one policy. `progress` hears the part of the jobs that is over."""
    jobs = {job.id: job for job in workload.jobs}

    def work_of(job_id: JobId) -> Work:
        job = jobs[job_id]
        is_resumable = job.spec.mode is not Mode.FIXED
        return Work(job.spec.epochs, job.truth.run_s, is_resumable)

    name = describe(policy)
    recorder = Recorder(workload, nodes, progress, keeps_tenures=options.record_tenures)
    decision_s: list[float] = []

    def timed_decide(view: View) -> Plan:
        started_s = perf_counter()
        plan = decide(view, policy)
        decision_s.append(perf_counter() - started_s)
        if plan.violations:
            raise PolicyError(
                f"policy {shown(name, PATH)} broke a rule at {view.now:g} s: {plan.violations[0]}"
            )
        return plan

    engine = FakeEngine(work_of, Delays(start_s=options.restart_cost_s))
    replay = Replay(Kernel(options.rules), engine, decide=timed_decide, record=recorder.record)
    if all(job.spec.mode is not Mode.FIXED for job in workload.jobs):
        replay.run(_arrivals(workload, nodes))
    else:
        _run_with_patience(replay, recorder, workload=workload, nodes=nodes, options=options)
    return recorder.result(name, decision_s)


def _run_with_patience(
    replay: Replay,
    recorder: Recorder,
    *,
    workload: Workload,
    nodes: Sequence[Node],
    options: Options,
) -> None:
    """A policy that stops programs again and again which then begin anew may never come to an
    end. It is given up when no job has ended for a long time."""
    alone = Alone(nodes)
    lengths = (
        job.truth.run_s(alone.slots(job.spec)[: job.spec.min_workers]) for job in workload.jobs
    )
    longest_s = max(filter(math.isfinite, lengths), default=0.0)
    pauses_s = options.restart_cost_s + options.round_s + options.min_runtime_s
    until_s = math.nextafter(workload.jobs[-1].submit_s, math.inf)
    replay.run(_arrivals(workload, nodes), until_s)
    n_ended = -1
    while recorder.n_ended > n_ended:
        n_ended = recorder.n_ended
        until_s += PATIENCE * (longest_s + pauses_s)
        replay.run((), until_s)


def _arrivals(workload: Workload, nodes: Sequence[Node]) -> Iterator[Arrival]:
    start_s = workload.jobs[0].submit_s if workload.jobs else 0.0
    for node in nodes:
        yield start_s, NodeSeen(node)
    for job in workload.jobs:
        yield job.submit_s, JobSubmitted(job.id, job.spec)
