"""Measures rota on 500 nodes with 8 GPUs each, beside the cluster's own scheduler.

    python -m benchmarks.kubernetes [--nodes N] [--gang N]

The control plane is real, the same as in the tests of the Kubernetes engine; KWOK simulates the
nodes. Everything runs on this machine and is removed at the end. Prints and writes
`docs/results/kubernetes.md`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable

from benchmarks.kubernetes.cluster import NAMESPACE, BenchmarkCluster, benchmark_cluster
from benchmarks.kubernetes.daemon import daemon
from benchmarks.kubernetes.measurements import (
    ClusterBenchmark,
    ClusterMeasure,
    ClusterResults,
    ClusterSize,
    memory,
)
from benchmarks.kubernetes.pod_watch import PodWatch
from benchmarks.support.flags import flags
from benchmarks.support.markdown import NO_VALUE, machine, page, publish, table
from rota.kube.client import connect

INTRODUCTION = """\
{n_nodes:,} nodes with {gpus} GPUs each, simulated by KWOK. The API server, etcd, the scheduler and
the controllers are real and run on the same machine as rota's daemon and the benchmark. A pod runs
when the API server says so. A job has one GPU; jobs are submitted in batches of 1,000 through the
daemon's API. A gang that can never run requests more GPUs per worker than a node has; a gang that
has to wait requests ten whole nodes, and the time is until its reason can be read. KAI's values are
its own, on 500 KWOK nodes and an unknown machine; its fill time is computed from its published
rate. KAI's gang could not be placed; rota refuses a gang that can never run at the submit, which is
less work, so these two values do not compare. The standby has its own empty disk; it has to release
a held job, for which another job is preempted.
Made by `python -m benchmarks.kubernetes` on a machine with {machine}."""
CPU = """\
## Where the time goes

CPU seconds of each process, from the first submit until all jobs ran."""


def main() -> None:
    parser = flags(__doc__ or "", page="kubernetes.md")
    parser.add_argument(
        "--nodes", type=int, default=ClusterSize().n_nodes, help="how many (%(default)s)"
    )
    parser.add_argument(
        "--gang", type=int, default=ClusterSize().n_gang, help="workers (%(default)s)"
    )
    arguments = parser.parse_args()
    size = ClusterSize(n_nodes=arguments.nodes, n_gang=arguments.gang)
    with benchmark_cluster(f"scale-{os.getpid()}", n_nodes=size.n_nodes, gpus=size.gpus) as made:
        found = asyncio.run(_measure(made, size))
    publish(render(found, size), arguments.out)


async def _measure(made: BenchmarkCluster, size: ClusterSize) -> ClusterResults:
    cluster, found = connect(made.kubeconfig, namespace=NAMESPACE), ClusterResults()
    benchmark = ClusterBenchmark(made, cluster, PodWatch(cluster), size)
    following = asyncio.create_task(benchmark.pod_watch.follow())
    try:
        await benchmark.stock(found)
        _tell(found, (ClusterMeasure.LOAD, ClusterMeasure.STOCK))
        with daemon(made) as running:
            await benchmark.gang(running, found)
            _tell(found, (ClusterMeasure.GANG,))
            await benchmark.fill(running, found)
            _tell(found, (ClusterMeasure.FILL,))
            await benchmark.takeovers(running, found)
            _tell(found, (ClusterMeasure.TAKEOVER,))
            await benchmark.answers(running, found)
            memory(running, found)
            _tell(found, (ClusterMeasure.IMPOSSIBLE, ClusterMeasure.CROWDED, ClusterMeasure.MEMORY))
            with daemon(made, is_standby=True) as standby:
                await benchmark.handover(running, found, standby=standby)
            _tell(found, (ClusterMeasure.HANDOVER,))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await cluster.close()
    return found


def _tell(found: ClusterResults, news: Iterable[ClusterMeasure]) -> None:
    for what in news:
        spent = " ".join(f"{name} {used:.0f}" for name, used in found.cpu.get(what, {}).items())
        print(f"{what.title}: {found.figures[what]} {spent}", file=sys.stderr)


def render(found: ClusterResults, size: ClusterSize) -> str:
    figures = found.figures
    rows = [
        (what.title, what.aim or NO_VALUE, str(figures.get(what, NO_VALUE)), what.kai or NO_VALUE)
        for what in ClusterMeasure
    ]
    ratio = figures[ClusterMeasure.FILL].value / figures[ClusterMeasure.STOCK].value
    spent = (ClusterMeasure.STOCK, ClusterMeasure.FILL)
    names = list(dict.fromkeys(name for what in spent for name in found.cpu[what]))
    return page(
        "# How fast a cluster fills",
        INTRODUCTION.format(n_nodes=size.n_nodes, gpus=size.gpus, machine=machine()),
        table(("what", "aim", "rota", "KAI"), rows),
        f"A job for each GPU takes {ratio:.1f} times as long as a bare pod for each GPU. A job is"
        " more than its pod: an object that outlives it, and what is kept in that of its life.",
        CPU,
        table(
            ("process", *(what.title for what in spent)),
            [
                (
                    name,
                    *(
                        f"{found.cpu[what][name]:.0f}" if name in found.cpu[what] else NO_VALUE
                        for what in spent
                    ),
                )
                for name in names
            ],
        ),
    )


if __name__ == "__main__":
    main()
