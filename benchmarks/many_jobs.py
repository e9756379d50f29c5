"""Measures operations over all jobs: `rota nodes`, and the cancellation of every queued job.

    python -m benchmarks.many_jobs

Each operation runs at three sizes of cluster. An operation with linear cost takes twice the time at
twice the size. Prints and writes `docs/results/many_jobs.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

from benchmarks.support.flags import flags
from benchmarks.support.markdown import machine, page, publish, table
from rota.core.kernel.kernel import Kernel
from rota.core.model.events import JobCancelled, JobSubmitted, NodeSeen
from rota.core.model.job import JobId, JobSpec, Queued
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.daemon.jobs.views import node_views
from rota.policies.fifo import Fifo
from rota.simulator.cluster_spec import parse_cluster

GPUS_PER_NODE = 8
USER = "user"


@dataclass(frozen=True, slots=True)
class ManyJobsSize:
    """A cluster, and the CPU times of the two operations when both scanned all jobs each time."""

    nodes: int
    jobs: int
    quadratic_nodes_s: float
    quadratic_cancels_s: float


SIZES = (
    ManyJobsSize(125, 2_500, 0.093, 0.137),
    ManyJobsSize(250, 5_000, 0.366, 0.495),
    ManyJobsSize(500, 10_000, 1.362, 2.966),
)


@dataclass(frozen=True, slots=True)
class ManyJobsTimes:
    size: ManyJobsSize
    nodes_s: float
    cancels_s: float


def main() -> None:
    arguments = flags("operations over all jobs", page="many_jobs.md").parse_args()
    publish(render([measure(size) for size in SIZES]), arguments.out)


def measure(size: ManyJobsSize) -> ManyJobsTimes:
    kernel = Kernel(Rules())
    kernel.apply_all(map(NodeSeen, parse_cluster(f"{size.nodes}x{GPUS_PER_NODE}")), 0.0)
    ids = [JobId(f"job-{number}") for number in range(size.jobs)]
    kernel.apply_all([JobSubmitted(each, JobSpec(each, user=USER)) for each in ids], 0.0)
    kernel.commit(decide(kernel.view(0.0), Fifo()), 0.0)
    began_s = process_time()
    node_views(kernel.nodes.values(), kernel.jobs.values(), readings={})
    listed_s = process_time()
    queued = [job.id for job in kernel.jobs.values() if isinstance(job.phase, Queued)]
    before_cancels_s = process_time()
    for job_id in queued:
        kernel.apply(JobCancelled(job_id, USER), 1.0)
    return ManyJobsTimes(size, listed_s - began_s, process_time() - before_cancels_s)


def render(results: Sequence[ManyJobsTimes]) -> str:
    rows = [
        [
            f"{each.size.nodes:,}",
            f"{each.size.jobs:,}",
            f"{1000 * each.size.quadratic_nodes_s:,.0f}",
            f"{1000 * each.nodes_s:,.0f}",
            f"{1000 * each.size.quadratic_cancels_s:,.0f}",
            f"{1000 * each.cancels_s:,.0f}",
        ]
        for each in results
    ]
    header = ["nodes", "jobs", "nodes, scans", "nodes", "cancels, scans", "cancels"]
    return page(
        "# Operations over all jobs",
        f"CPU milliseconds on a cluster with {GPUS_PER_NODE} GPUs per node and one GPU per job."
        " *nodes* is the answer of `rota nodes`; *cancels* is the cancellation of all jobs that the"
        " cluster has no GPU for, one by one. *scans* is the time of the earlier versions, which"
        " scanned all jobs for each node and for each ended job. Made by"
        f" `python -m benchmarks.many_jobs` on a machine with {machine()}.",
        table(header, rows, texts=0),
    )


if __name__ == "__main__":
    main()
