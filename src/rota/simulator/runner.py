"""Simulates a workload with the production kernel and scheduler in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from rota.core.estimation.virtual_time_loop import TimedEvent, VirtualTimeLoop
from rota.core.kernel.kernel import Kernel
from rota.core.model.allocation import Allocation, split_workers
from rota.core.model.events import JobSubmitted, NodeSeen
from rota.core.model.job import JobId, Mode
from rota.core.model.node import Node
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules, View
from rota.engines.virtual.engine import VirtualEngine
from rota.engines.virtual.run import Delays, VirtualWork
from rota.errors import MAX_SHOWN_PATH_CHARS, PolicyError, shown
from rota.policies.registry import describe
from rota.simulator.metrics import SimulationRun
from rota.simulator.recorder import Recorder
from rota.simulator.standalone_runtime import StandaloneBaseline
from rota.simulator.workload import TraceJob, Workload

PROGRESS_LIMIT_FACTOR = 100
"""A simulation stops if no job ends within this many times the length of the longest job."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a simulation. Every start costs `restart_cost_s`, including the first."""

    restart_cost_s: float = 30.0
    round_s: float = 0.0
    min_runtime_s: float = 60.0
    guard: bool = True
    record_allocation_spans: bool = False

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
) -> SimulationRun:
    """Simulate a workload under one policy. `progress` receives the fraction of ended jobs."""
    jobs = {job.id: job for job in workload.jobs}

    def work_of(job_id: JobId) -> VirtualWork:
        job = jobs[job_id]
        is_resumable = job.spec.mode is not Mode.FIXED
        return VirtualWork(job.spec.epochs, partial(_run_s, job), is_resumable)

    name = describe(policy)
    recorder = Recorder(workload, nodes, progress, record_spans=options.record_allocation_spans)
    decision_s: list[float] = []

    def timed_decide(view: View) -> Plan:
        started_s = perf_counter()
        plan = decide(view, policy)
        decision_s.append(perf_counter() - started_s)
        if plan.violations:
            raise PolicyError(
                f"policy {shown(name, MAX_SHOWN_PATH_CHARS)} made an invalid plan at"
                f" {view.now:g} s: {plan.violations[0]}"
            )
        return plan

    engine = VirtualEngine(work_of, Delays(start_s=options.restart_cost_s))
    loop = VirtualTimeLoop(
        Kernel(options.rules), engine, decide=timed_decide, record=recorder.record
    )
    if all(job.spec.mode is not Mode.FIXED for job in workload.jobs):
        loop.run(_arrivals(workload, nodes))
    else:
        _run_with_progress_limit(loop, recorder, workload=workload, nodes=nodes, options=options)
    return recorder.result(name, decision_s)


def _run_s(job: TraceJob, allocation: Allocation) -> float:
    units = split_workers(allocation) if job.spec.merges_units else allocation
    return job.runtime.run_s(units)


def _run_with_progress_limit(
    loop: VirtualTimeLoop,
    recorder: Recorder,
    *,
    workload: Workload,
    nodes: Sequence[Node],
    options: Options,
) -> None:
    """Stop the simulation when no job has ended for a long time.

    A job of mode `fixed` loses its work at every stop. A policy that preempts such jobs again and
    again may never finish them.
    """
    baseline = StandaloneBaseline(nodes)
    lengths = (
        job.runtime.run_s(baseline.slots(job.spec)[: job.spec.min_workers]) for job in workload.jobs
    )
    longest_s = max(filter(math.isfinite, lengths), default=0.0)
    pauses_s = options.restart_cost_s + options.round_s + options.min_runtime_s
    until_s = math.nextafter(workload.jobs[-1].submit_s, math.inf)
    loop.run(_arrivals(workload, nodes), until_s)
    n_ended = -1
    while recorder.n_ended > n_ended:
        n_ended = recorder.n_ended
        until_s += PROGRESS_LIMIT_FACTOR * (longest_s + pauses_s)
        loop.run((), until_s)


def _arrivals(workload: Workload, nodes: Sequence[Node]) -> Iterator[TimedEvent]:
    start_s = workload.jobs[0].submit_s if workload.jobs else 0.0
    for node in nodes:
        yield start_s, NodeSeen(node)
    for job in workload.jobs:
        yield job.submit_s, JobSubmitted(job.id, job.spec)
