"""How long one round takes: every policy, three sizes of cluster, one core.

    python -m benchmarks.decide [--policy NAME ...] [--rounds N]

A round is divide, size, place, guard and check (`rota.core.round.decide`); making the view before
it and committing the plan after it are timed on their own. The first round fills an empty cluster;
in the steady rounds after it a few jobs have ended and as many have come. Prints and writes
`docs/results/decide.md`.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time
from typing import TypeVar

from benchmarks.crowd import Crowd
from benchmarks.page import page, publish, table
from benchmarks.runs import flags
from rota.core.policy import Policy
from rota.core.round import decide
from rota.policies.registry import describe, parse_many

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ROUNDS = 9

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
ROOMY = Size(256, 400, 200.0)
"""In the others the minima alone fill the cluster; here most of the work is growth."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds on the wall and of this process's own."""

    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Round:
    view: Timing
    decide: Timing
    commit: Timing


@dataclass(frozen=True, slots=True)
class Result:
    """One policy at one size: the first round, and the steady ones."""

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
        for size in (*SIZES, ROOMY)
    ]
    publish(render(results, machine()), arguments.out)


def _limit_threads() -> None:
    """Numeric libraries read their number of threads when they are loaded: start over with one."""
    wanted = dict.fromkeys(THREAD_VARIABLES, "1")
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        again = [sys.executable, "-m", "benchmarks.decide", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **wanted})


def run(policy: Policy, size: Size, *, rounds: int) -> Result:
    crowd = Crowd(size.nodes, size.jobs)
    cold = time_round(crowd, policy)
    steady: list[Round] = []
    for _ in range(rounds):
        crowd.turn_over()
        steady.append(time_round(crowd, policy))
    return Result(describe(policy), size, cold, tuple(steady))


def time_round(crowd: Crowd, policy: Policy) -> Round:
    view, to_view = timed(crowd.view)
    plan, to_decide = timed(lambda: decide(view, policy))
    if plan.violations:
        raise SystemExit(f"{describe(policy)} broke a rule: {plan.violations[0]}")
    effects, to_commit = timed(lambda: crowd.commit(plan))
    crowd.carry_out(effects)
    return Round(to_view, to_decide, to_commit)


def timed(work: Callable[[], T]) -> tuple[T, Timing]:
    wall_s, cpu_s = perf_counter(), process_time()
    result = work()
    cpu_s, wall_s = process_time() - cpu_s, perf_counter() - wall_s
    return result, Timing(1000 * wall_s, 1000 * cpu_s)


def machine() -> str:
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


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
Milliseconds of CPU time for one round of the production scheduler (`rota.core.round.decide`:
divide, size, place, guard, check) on nodes of 8 GPUs, with jobs from the generator `synthetic`
(sizes 1 to 32, half of them elastic). At the three sizes with an aim of their own the jobs'
minima alone fill the cluster; 400 jobs on 2,048 GPUs leave room to grow. *First round* fills an
empty cluster; before each steady round 1 % of the running jobs ended, as many came and some
reported progress. *View* and *commit* happen before and after a decision. *On the wall* is the
same median by the clock: other work on the machine is in it, which is why the aim is compared
with CPU time. Numeric libraries are limited to one thread. Made by `python -m benchmarks.decide`
on a machine with {machine}.
"""

GROWTH = """
The exponent x of time ~ jobs^x from one size to the next, for the median of steady rounds; n log
n is an x of about 1.1 here. The cluster grows, too: 32-fold while the jobs grow 12.5-fold, then
2-fold while they grow 5-fold. *Sizing* is the policy's own work for J jobs on K GPUs; placing
what changed comes on top.
"""


if __name__ == "__main__":
    main()
