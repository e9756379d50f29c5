"""Compares rota with Voda's four published algorithms on both of its workloads.

    python -m benchmarks.voda

Voda's results were measured on 12 GPUs (heyfey/vodascheduler, branch exp); rota's results are
simulated with the same jobs. Writes `docs/results/voda.md`; needs no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.support.flags import flags
from benchmarks.support.markdown import page, publish, ratio, table, whole
from benchmarks.support.simulation import measure
from rota.simulator.metrics import RunMetrics
from rota.simulator.runner import Options
from rota.simulator.traces.voda_builtin import voda_workload

CLUSTER = "3x4"
TRACES = ("run_1", "run_1_hard")
ROUND_S = 120.0
COSTS_S = tuple(range(0, 181, 10))
TIRESIAS = "threshold_gpu_s=1800,knob=4,compaction=4"
POLICIES = {
    "ElasticFIFO": "elastic-fifo",
    "ElasticTiresias": f"elastic-tiresias:{TIRESIAS}",
    "FfDLOptimizer": "ffdl",
    "AFS-L": "afs-l",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """One trace with all jobs at the same size."""

    trace: str
    size: int
    figures: RunMetrics


Results = Sequence[RunMetrics]
"""Ours, row by row as in `PUBLISHED`."""


@dataclass(frozen=True, slots=True)
class Published:
    """One row of Voda's own results, from the logs of its branch exp."""

    trace: str
    algorithm: str
    makespan_s: float
    mean_jct_s: float
    p95_jct_s: float
    mean_wait_s: float
    mean_gpu_s: float
    workers_moved: int
    rescheds: int


PUBLISHED = (
    Published("run_1", "ElasticFIFO", 6196, 3506, 5173, 1118, 2789, 75, 26),
    Published("run_1", "ElasticTiresias", 7269, 4506, 6756, 2801, 3459, 115, 51),
    Published("run_1", "FfDLOptimizer", 6071, 3504, 5137, 1121, 2811, 74, 26),
    Published("run_1", "AFS-L", 6017, 3079, 5714, 862, 2859, 78, 26),
    Published("run_1_hard", "ElasticFIFO", 6442, 2549, 4203, 308, 3013, 98, 32),
    Published("run_1_hard", "ElasticTiresias", 7344, 3276, 5808, 1533, 3491, 108, 52),
    Published("run_1_hard", "FfDLOptimizer", 6364, 2586, 4489, 297, 3031, 92, 32),
    Published("run_1_hard", "AFS-L", 6893, 2711, 5312, 350, 3244, 110, 34),
)


def main() -> None:
    arguments = flags(__doc__ or "", page="voda.md").parse_args()
    by_cost = {cost_s: run_all(cost_s, guard=False) for cost_s in COSTS_S}
    best_s = best_cost(by_cost)
    guarded = run_all(best_s, guard=True)
    waits = [
        run_at_size(trace, policy, size=size, cost_s=best_s)
        for trace in TRACES
        for policy in ("fifo", "tiresias:threshold_gpu_s=1800,knob=4")
        for size in (1, 2)
    ]
    publish(render(by_cost, best_s, guarded=guarded, waits=waits), arguments.out)


def run_all(cost_s: float, *, guard: bool) -> Results:
    options = Options(restart_cost_s=cost_s, round_s=ROUND_S, guard=guard)
    return [
        measure(voda_workload(row.trace), CLUSTER, policy=POLICIES[row.algorithm], options=options)
        for row in PUBLISHED
    ]


def run_at_size(trace: str, policy: str, *, size: int, cost_s: float) -> Wait:
    """Run all jobs at one size under a policy that does not resize."""
    workload = voda_workload(trace)
    jobs = (
        replace(job, spec=replace(job.spec, min_workers=size, requested_workers=size))
        for job in workload.jobs
    )
    options = Options(restart_cost_s=cost_s, round_s=ROUND_S, guard=False)
    figures = measure(replace(workload, jobs=tuple(jobs)), CLUSTER, policy=policy, options=options)
    return Wait(trace, size, figures)


def best_cost(by_cost: Mapping[int, Results]) -> int:
    return min(by_cost, key=lambda cost_s: misfit(by_cost[cost_s]))


def misfit(results: Results) -> float:
    """Root mean square of the logarithms of all ratios of mean completion time and makespan."""
    return math.hypot(*_logs(results, "mean_jct_s"), *_logs(results, "makespan_s")) / math.sqrt(
        2 * len(results)
    )


def _logs(results: Results, figure: str) -> list[float]:
    return [
        math.log(getattr(ours, figure) / getattr(theirs, figure))
        for ours, theirs in zip(results, PUBLISHED, strict=True)
    ]


def mean_ratio(results: Results, figure: str) -> float:
    """The geometric mean over all rows."""
    return math.exp(sum(_logs(results, figure)) / len(results))


def render(
    by_cost: Mapping[int, Results], best_s: int, *, guarded: Results, waits: Sequence[Wait]
) -> str:
    plain = by_cost[best_s]
    return page(
        "# Voda's experiments, side by side",
        INTRODUCTION,
        "## One restart cost for all",
        RESTART_COST.format(best_s=best_s, misfit=100 * misfit(plain)),
        _costs_table(by_cost, best_s),
        "## Without the guard, as Voda has none",
        "Seconds; *ours / Voda's = ratio*.",
        _times_table(plain),
        _changes_table(plain),
        "## What explains the rest",
        EXPLANATION,
        "## Size and wait",
        WAITS.format(best_s=best_s),
        _waits_table(waits),
        "## With the guard",
        GUARDED.format(best_s=best_s),
        _guard_table(plain, guarded),
    )


def _costs_table(by_cost: Mapping[int, Results], best_s: int) -> str:
    rows = [
        (
            f"**{cost_s}**" if cost_s == best_s else str(cost_s),
            f"{mean_ratio(results, 'mean_jct_s'):.2f}",
            f"{mean_ratio(results, 'makespan_s'):.2f}",
            f"{100 * misfit(results):.1f} %",
        )
        for cost_s, results in by_cost.items()
    ]
    header = ("restart cost, s", "mean completion, ratio", "makespan, ratio", "misfit")
    return table(header, rows, texts=0)


def _times_table(results: Results) -> str:
    figures = ("mean_jct_s", "makespan_s", "p95_jct_s", "mean_wait_s")
    rows = [
        (
            theirs.trace,
            theirs.algorithm,
            *(_beside(getattr(ours, name), getattr(theirs, name)) for name in figures),
        )
        for ours, theirs in zip(results, PUBLISHED, strict=True)
    ]
    header = ("trace", "algorithm", "mean completion", "makespan", "95th percentile", "mean wait")
    return table(header, rows, texts=2)


def _beside(ours: float | None, theirs: float) -> str:
    return f"{whole(ours)} / {whole(theirs)} = {ratio(ours, theirs)}"


def _changes_table(results: Results) -> str:
    rows = [
        (
            theirs.trace,
            theirs.algorithm,
            _beside(ours.gpu_hours * 3600 / ours.jobs, theirs.mean_gpu_s),
            f"{ours.rounds} / {theirs.rescheds}",
            f"{ours.moves} / {theirs.workers_moved}",
            str(ours.resizes),
            str(ours.preemptions),
        )
        for ours, theirs in zip(results, PUBLISHED, strict=True)
    ]
    header = (
        *("trace", "algorithm", "GPU-seconds a job", "rounds", "workers moved"),
        *("our resizes", "our preemptions"),
    )
    return table(header, rows, texts=2)


def _waits_table(waits: Sequence[Wait]) -> str:
    rows = [
        (
            each.trace,
            each.figures.policy.partition(":")[0],
            str(each.size),
            *(
                f"{(value or 0) / 60:.0f}"
                for value in (each.figures.mean_wait_s, each.figures.mean_jct_s)
            ),
            str(each.figures.preemptions),
        )
        for each in waits
    ]
    header = ("trace", "policy", "GPUs a job", "mean wait", "mean completion", "preemptions")
    return table(header, rows, texts=2)


def _guard_table(plain: Results, guarded: Results) -> str:
    rows = [
        (
            theirs.trace,
            theirs.algorithm,
            f"{whole(without.mean_jct_s)} → {whole(with_guard.mean_jct_s)}",
            f"{whole(without.makespan_s)} → {whole(with_guard.makespan_s)}",
            ratio(with_guard.mean_jct_s, theirs.mean_jct_s),
            f"{without.resizes} → {with_guard.resizes}",
            f"{without.moves} → {with_guard.moves}",
            f"{without.preemptions} → {with_guard.preemptions}",
        )
        for without, with_guard, theirs in zip(plain, guarded, PUBLISHED, strict=True)
    ]
    header = (
        *("trace", "algorithm", "mean completion, s", "makespan, s", "of Voda's mean"),
        *("resizes", "workers moved", "preemptions"),
    )
    return table(header, rows, texts=2)


INTRODUCTION = """
Voda ran 24 jobs on 3 nodes with 4 GPUs each, under four algorithms and two patterns of arrival,
and published the logs (heyfey/vodascheduler, branch exp). The same jobs are built in here as
`voda:run_1` and `voda:run_1_hard`, with the run times and speed-ups that Voda measured. Settings
are Voda's: 120 s between rounds, a Tiresias threshold of 1,800 GPU-seconds, knob 4, compaction 4.
Theirs is measured on a cluster; ours is the production scheduler in the simulator. Made by
`python -m benchmarks.voda`.
"""
RESTART_COST = """
The one thing that the logs do not tell is what a change costs: the time from Voda's decision
until the job trains again. It is the same for all eight rows here, and chosen once: from 0 to 180
s in steps of 10, the cost with the smallest misfit, which is the root mean square of the
logarithms of the sixteen ratios (mean completion and makespan of every row). That is **{best_s}
s**, with a misfit of {misfit:.1f} %. Nothing is tuned by row.

It is a plausible figure. Voda changes a job's size by deleting and creating pods under the MPI
operator: the hosts file reaches the launcher with the kubelet's next synchronisation (up to a
minute), Horovod leaves a lost host out for 30 to 100 s (`--blacklist-cooldown-range 30 100`), the
uncommitted part of an epoch is lost, and the process group is built anew.
"""
EXPLANATION = """
- *One cost for every change.* In Voda a worker that joins costs less than a launcher that
  restarts with all its workers, of which it counted 47 to 92 a run; here both cost the same.
- *Moves.* Voda's placement moved 74 to 115 workers a run, about three a round; the order of nodes
  that it works with is shuffled from one round to the next. Ours keeps jobs where they are. What
  those moves cost Voda is part of the fitted restart cost.
- *GPU-seconds.* The jobs' work is 2,402 GPU-seconds a job on one GPU each. What is above it is
  the price of running on several GPUs at once, and of restarts. Voda measured its GPUs to be busy
  only 39 to 44 % of the time although 90 to 95 % of them were given out.
- *ElasticTiresias is the slowest in both.* It runs jobs at their requested size of 2, so that six
  run where the others run twelve, and it preempts. The restart cost decides how often: on 2 GPUs
  VGG16 and ResNet50, half of all jobs, train for 821 and 832 s, and are sent to the second queue
  after 900 s (1,800 GPU-seconds). A start that takes more than 70 to 80 s pushes them over that
  limit moments before they would end. Voda's makespans are longer still. Its code tests for
  promotion while a job runs and does not reset the last wait, so that a job that has just been
  started again may be promoted at once; ours promotes only jobs that wait.
- *Run times.* That of InceptionV3 on one GPU was seen once, and its jobs are two fifths of all
  work; the other three are medians.
- *Chance.* Voda breaks ties by the order of a Go map, ours by submission. Each of Voda's rows is
  a single run.
"""
WAITS = """
Why does `tiresias` wait so much longer than `fifo`? `fifo` runs jobs at their minimum of 1 GPU,
`tiresias` at the 2 that they request. At the same size 1 both wait alike. At 2 half as many jobs
run at once, so that `fifo`, too, waits twice as long; and `tiresias` makes jobs of much the same
length take turns, which lets all of them end late. Minutes, without the guard, at {best_s} s.
"""
GUARDED = """
The same at {best_s} s with our guard: a job is left alone for 60 s after its start, grows only if
it ends sooner although it has to restart, and gives up GPUs only if another job uses them.
*Without → with.*
"""


if __name__ == "__main__":
    main()
