"""How the mode of a job shows in a simulation."""

from __future__ import annotations

import math

import pytest

from rota.core.model.job import Estimate, Mode, Processes
from rota.policies.registry import parse
from rota.simulator.cluster_spec import parse_cluster
from rota.simulator.metrics import SimulationRun
from rota.simulator.runner import Options, simulate
from rota.simulator.workload import Scaling, TraceEntry, workload_of
from tests.support.builders import job

NODES = parse_cluster("1x1")
FREE = Options(restart_cost_s=0.0, min_runtime_s=0.0, guard=False)


def entry(name: str, mode: Mode, *, submit_s: float, run_s: float) -> TraceEntry:
    spec = job(name, mode=mode, estimate=Estimate(run_s))
    return TraceEntry(submit_s, 2, spec, Scaling(run_s, (0.0, 1.0)))


def run(policy: str, *entries: TraceEntry, options: Options = FREE) -> SimulationRun:
    workload = workload_of("made", entries)
    return simulate(workload, NODES, policy=parse(policy), options=options, progress=lambda _: None)


@pytest.mark.parametrize(("mode", "end_s"), [(Mode.RESTART, 1010.0), (Mode.FIXED, 1510.0)])
def test_a_fixed_job_restarts_from_the_beginning(mode: Mode, end_s: float):
    long = entry("long", mode, submit_s=0.0, run_s=1000.0)
    short = entry("short", Mode.RESTART, submit_s=500.0, run_s=10.0)
    result = run("srjf", long, short)
    assert result.preemptions == 1
    assert {each.name: each.finished_s for each in result.outcomes} == {
        "long": end_s,
        "short": 510.0,
    }


def test_a_simulation_without_progress_stops():
    jobs = [
        entry(f"job-{start_s}", Mode.FIXED, submit_s=start_s, run_s=36_000.0)
        for start_s in (0, 10, 20)
    ]
    result = run("tiresias", *jobs, options=Options())
    assert all(math.isinf(each.finished_s) for each in result.outcomes)
    assert result.preemptions > 100


@pytest.mark.parametrize(("max_nodes", "end_s"), [(0, 100.0), (1, 200.0)])
def test_a_job_with_one_worker_on_each_node_is_as_fast_as_its_gpus(max_nodes: int, end_s: float):
    spec = job(
        "a",
        gpus="1..4",
        processes=Processes.PER_NODE,
        max_nodes=max_nodes,
        estimate=Estimate(400.0),
    )
    made = TraceEntry(0.0, 2, spec, Scaling(400.0, (0.0, 1.0, 2.0, 3.0, 4.0)))
    result = simulate(
        workload_of("made", [made]),
        parse_cluster("2x2"),
        policy=parse("elastic-fifo"),
        options=FREE,
        progress=lambda _: None,
    )
    assert [each.finished_s for each in result.outcomes] == [end_s]
