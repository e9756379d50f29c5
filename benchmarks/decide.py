"""Measures the time of one round: every policy, clusters of several sizes, one core.

    python -m benchmarks.decide [--policy NAME ...] [--rounds N]

A round is divide, size, judge, place, settle and check (`rota.core.scheduling.round.decide`).
Creating the view and committing the plan are measured separately. The first round fills an empty
cluster; before each of the following steady rounds, a few jobs end and as many are submitted.
Prints and writes `docs/results/decide.md`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import TypeVar

from benchmarks.support.flags import flags
from benchmarks.support.markdown import machine, page, publish, table
from rota.core.kernel.kernel import Kernel
from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.effects import Effects
from rota.core.model.events import (
    JobSubmitted,
    MembershipChanged,
    NodeSeen,
    ProgressReported,
    WorkersExited,
    WorkersStarted,
)
from rota.core.model.job import Job, JobId, Running
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules, View
from rota.policies.registry import describe, parse_many
from rota.simulator.cluster_spec import parse_cluster
from rota.simulator.traces.synthetic import synthetic
from rota.simulator.workload import TraceJob

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ROUNDS = 9
SEED = 1
STEP_S = 60.0
ENDING = 0.01
REPORTING = 0.1
SPARE_JOBS = 4
"""Factor of generated jobs: jobs that are submitted later come from the same generator."""
STOPPED = 143
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    jobs: int
    aim_ms: float

    @property
    def gpus(self) -> int:
        return self.nodes * 8

    def __str__(self) -> str:
        return f"{self.gpus:,} GPUs, {self.jobs:,} jobs"


SIZES = (Size(8, 160, 10.0), Size(256, 2_000, 200.0), Size(500, 10_000, 1_000.0))
LARGE = Size(4_000, 100_000, 5_000.0)
LARGE_POLICIES = ("elastic-fifo", "elastic-tiresias")
"""The largest size takes minutes, so only these policies run at it."""
ROOMY = Size(256, 400, 200.0)
"""In the others the minima alone fill the cluster; here most of the work is growth."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of wall time and of this process's CPU time."""

    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Round:
    view: Timing
    decide: Timing
    commit: Timing


@dataclass(frozen=True, slots=True)
class Result:
    """One policy at one size: the first round and the steady rounds."""

    policy: str
    size: Size
    cold: Round
    steady: tuple[Round, ...]

    @property
    def median_ms(self) -> float:
        return median(each.decide.cpu_ms for each in self.steady)

    @property
    def is_met(self) -> bool:
        return self.median_ms <= self.size.aim_ms


def main() -> None:
    _limit_threads()
    parser = flags(__doc__ or "", page="decide.md")
    parser.add_argument("--policy", action="append", metavar="NAME", help="default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="steady rounds of each")
    arguments = parser.parse_args()
    policies = parse_many(arguments.policy or ["all"])
    results = [
        run(policy, size, rounds=arguments.rounds)
        for policy in policies
        for size in sizes_for(policy)
    ]
    publish(render(results, machine()), arguments.out)


def sizes_for(policy: Policy) -> tuple[Size, ...]:
    is_large = describe(policy).partition(":")[0] in LARGE_POLICIES
    return (*SIZES, LARGE, ROOMY) if is_large else (*SIZES, ROOMY)


def _limit_threads() -> None:
    """Restart with one thread, because numeric libraries read the limit when they are loaded."""
    wanted = dict.fromkeys(THREAD_VARIABLES, "1")
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        again = [sys.executable, "-m", "benchmarks.decide", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **wanted})


def run(policy: Policy, size: Size, *, rounds: int) -> Result:
    churn = JobChurn(size.nodes, size.jobs)
    cold = time_round(churn, policy)
    steady: list[Round] = []
    for _ in range(rounds):
        churn.turn_over()
        steady.append(time_round(churn, policy))
    return Result(describe(policy), size, cold, tuple(steady))


def time_round(churn: JobChurn, policy: Policy) -> Round:
    view, to_view = timed(churn.view)
    plan, to_decide = timed(lambda: decide(view, policy))
    if plan.violations:
        raise SystemExit(f"{describe(policy)} broke a rule: {plan.violations[0]}")
    effects, to_commit = timed(lambda: churn.commit(plan))
    churn.carry_out(effects)
    return Round(to_view, to_decide, to_commit)


def timed(work: Callable[[], T]) -> tuple[T, Timing]:
    wall_s, cpu_s = perf_counter(), process_time()
    result = work()
    cpu_s, wall_s = process_time() - cpu_s, perf_counter() - wall_s
    return result, Timing(1000 * wall_s, 1000 * cpu_s)


def render(results: Sequence[Result], machine: str) -> str:
    missed = [result for result in results if not result.is_met]
    names = "; ".join(f"`{each.policy}` at {each.size}" for each in missed)
    return page(
        "# How long a round takes",
        INTRODUCTION.format(machine=machine),
        _table(results),
        f"Above the aim: {names}." if missed else "All are within the aim.",
        "## Growth",
        GROWTH,
        _growth_table(results),
    )


def _table(results: Sequence[Result]) -> str:
    header = (
        *("policy", "size", "aim", "steady median", "on the wall", "steady max", "first round"),
        *("view", "commit"),
    )
    return table(header, [_row(result) for result in results], texts=2)


def _row(result: Result) -> tuple[str, ...]:
    steady = result.steady
    shown = _ms(result.median_ms)
    return (
        result.policy,
        str(result.size),
        f"{result.size.aim_ms:,.0f}",
        shown if result.is_met else f"**{shown}**",
        _ms(median(each.decide.wall_ms for each in steady)),
        _ms(max(each.decide.cpu_ms for each in steady)),
        _ms(result.cold.decide.cpu_ms),
        _ms(median(each.view.cpu_ms for each in steady)),
        _ms(median(each.commit.cpu_ms for each in steady)),
    )


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _growth_table(results: Sequence[Result]) -> str:
    by_policy: dict[str, list[Result]] = {}
    for result in results:
        if result.size in SIZES:
            by_policy.setdefault(result.policy, []).append(result)
    rows = [
        (name, COMPLEXITIES.get(name, ""), *(_exponent(a, b) for a, b in pairwise(own)))
        for name, own in by_policy.items()
    ]
    steps = (f"{a.jobs:,} to {b.jobs:,} jobs" for a, b in pairwise(SIZES))
    return table(("policy", "sizing", *steps), rows, texts=2)


def _exponent(small: Result, large: Result) -> str:
    steeper = math.log(large.median_ms / small.median_ms)
    return f"{steeper / math.log(large.size.jobs / small.size.jobs):.2f}"


class JobChurn:
    """A kernel with a constant number of jobs: every job that ends is replaced."""

    def __init__(self, nodes: int, jobs: int) -> None:
        self.now = 0.0
        self._kernel = Kernel(Rules(round_interval_s=STEP_S))
        self._random = Random(SEED)
        made = synthetic(f"jobs={SPARE_JOBS * jobs},seed={SEED},gpus={8 * nodes}").jobs
        self._coming = iter(made)
        for node in parse_cluster(f"{nodes}x8"):
            self._kernel.apply(NodeSeen(node), self.now)
        for _ in range(jobs):
            self._submit(next(self._coming))

    def view(self) -> View:
        return self._kernel.view(self.now)

    def commit(self, plan: Plan) -> Effects:
        return self._kernel.commit(plan, self.now)

    def carry_out(self, effects: Effects) -> None:
        """Carry out every command at once."""
        for command in effects.commands:
            job_id, attempt = command.job_id, command.attempt
            match command:
                case StartWorkers(allocation=slots):
                    event = WorkersStarted(job_id, attempt, frozenset(range(len(slots))))
                case StopWorkers(workers=workers):
                    event = WorkersExited(job_id, attempt, dict.fromkeys(workers, STOPPED))
                case ChangeMembership(generation=generation):
                    event = MembershipChanged(job_id, attempt, generation)
                case ReportWorkers() | AskToStop() | KillWorkers():
                    continue  # Workers here do not crash, stop reporting or take stop requests.
            self.carry_out(self._kernel.apply(event, self.now))

    def turn_over(self) -> None:
        """Advance the time: some jobs end, as many are submitted, and some report progress."""
        self.now += STEP_S
        running = [job for job in self._kernel.jobs.values() if isinstance(job.phase, Running)]
        leaving = self._random.sample(running, max(2, round(ENDING * len(running))))
        for job in leaving:
            exits = dict.fromkeys(range(len(job.allocation)), 0)
            self.carry_out(self._kernel.apply(WorkersExited(job.id, job.attempt, exits), self.now))
            self._submit(next(self._coming))
        for job in self._random.sample(running, round(REPORTING * len(running))):
            self._report(job)

    def _submit(self, job: TraceJob) -> None:
        self._kernel.apply(JobSubmitted(JobId(job.id), job.spec), self.now)

    def _report(self, job: Job) -> None:
        part = min(0.9, job.epochs_done + 0.02)
        epoch_s = job.speed.epoch_s(len(job.allocation))
        event = ProgressReported(job.id, job.attempt, part, epoch_s)
        self.carry_out(self._kernel.apply(event, self.now))


COMPLEXITIES = {
    "fifo": "J",
    "elastic-fifo": "J + K",
    "srjf": "J log J",
    "elastic-srjf": "J log J + K",
    "tiresias": "J log J",
    "elastic-tiresias": "J log J + K log J",
    "ffdl": "J; with R GPUs beyond the minima, J R max on top",
    "afs-l": "K scans of up to J in arrays, in practice from the last winner on",
}
INTRODUCTION = """
Milliseconds of CPU time for one round of the production scheduler
(`rota.core.scheduling.round.decide`: divide, size, judge, place, settle, check) on nodes of 8 GPUs,
with jobs from the generator `synthetic` (sizes 1 to 32, half of them elastic). 400 jobs on 2,048
GPUs leave room to grow; at all other sizes the jobs' minima fill the cluster. *First round* fills
an empty cluster; before each steady round 1 % of the running jobs end, as many are submitted and
some report progress. *View* and *commit* happen before and after a decision. *On the wall* is the
same median in wall time, which includes other work on the machine; the aim is compared with CPU
time. Numeric libraries use one thread. Made by `python -m benchmarks.decide` on a machine with
{machine}.
"""
GROWTH = """
The exponent x of time ~ jobs^x from one size to the next, for the median of steady rounds; n log
n is an x of about 1.1 here. The cluster grows, too: 32-fold while the jobs grow 12.5-fold, then
2-fold while they grow 5-fold. *Sizing* is the policy's own work for J jobs on K GPUs, without
placement.
"""


if __name__ == "__main__":
    main()
