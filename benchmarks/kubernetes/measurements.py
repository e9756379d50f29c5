"""The measurements of `benchmarks.kubernetes`."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter

from benchmarks.kubernetes.cluster import BenchmarkCluster
from benchmarks.kubernetes.daemon import Daemon
from benchmarks.kubernetes.pod_watch import PodWatch, plain_pod
from benchmarks.support.markdown import MIB, Figure
from benchmarks.support.sandbox import wait_until
from rota.client import JobRequest
from rota.client.endpoint import NoDaemonError
from rota.core.explain.reasons import WaitsForARound
from rota.errors import UnavailableError, UserError
from rota.kube.client import KubeClient
from rota.kube.resources import PODS
from tests.kubernetes.cluster.api import until

N_IN_BATCH = 1000
N_TAKEOVERS = 5
N_ANSWERS = 5
POLL_S = 0.005
CLEAR_S = 600.0
FILL_S = 1200.0
ANSWER_S = 60.0
HANDOVER_S = 120.0
IDLE_S, LOOK_S = 0.1, 1.0
"""A daemon that uses less than the one in the other has come to know all that there is."""
COMMAND = ["sleep", "infinity"]


class ClusterMeasure(Enum):
    """A row of the results: the measure, its aim, and the value that KAI reports."""

    STOCK = "a pod for each GPU, by kube-scheduler alone", "", ""
    FILL = "a job for each GPU, first submit to all running", "100 s", "400 s at its 10 jobs/s"
    TAKEOVER = "one GPU for a higher priority, all busy", "2 s", "13.9 s"
    IMPOSSIBLE = "say that a gang of 80 GPUs can never run", "1 s", "249 s"
    CROWDED = "say why a gang of 80 GPUs has to wait, all busy", "1 s", ""
    HANDOVER = "kill -9 of the leader to its standby's first start, all busy", "15 s", ""
    GANG = "a gang, submit to all running", "", ""
    MEMORY = "memory of the daemon, all busy", "500 MiB", ""
    LOAD = "load of the machine before", "", ""

    def __init__(self, title: str, aim: str, kai: str) -> None:
        self.title, self.aim, self.kai = title, aim, kai


@dataclass(frozen=True, slots=True)
class ClusterSize:
    n_nodes: int = 500
    gpus: int = 8
    n_gang: int = 512

    @property
    def n_gpus(self) -> int:
        return self.n_nodes * self.gpus


@dataclass(slots=True)
class ClusterResults:
    figures: dict[ClusterMeasure, Figure] = field(default_factory=dict[ClusterMeasure, Figure])
    cpu: dict[ClusterMeasure, Mapping[str, float]] = field(
        default_factory=dict[ClusterMeasure, Mapping[str, float]]
    )
    """What each process used meanwhile."""


@dataclass(frozen=True, slots=True)
class ClusterBenchmark:
    """Runs the measurements on one cluster with one daemon."""

    benchmark_cluster: BenchmarkCluster
    cluster: KubeClient
    pod_watch: PodWatch
    size: ClusterSize

    async def stock(self, found: ClusterResults) -> None:
        """Measure the stock scheduler without rota."""
        found.figures[ClusterMeasure.LOAD] = Figure(os.getloadavg()[0], "")
        names = [f"plain-{number}" for number in range(self.size.n_gpus)]
        before, began_s = self.benchmark_cluster.cpu_s(), perf_counter()
        await asyncio.gather(*(self.cluster.create(PODS, plain_pod(name)) for name in names))
        await self._until_running(len(names), within_s=FILL_S)
        found.figures[ClusterMeasure.STOCK] = Figure(perf_counter() - began_s, "s")
        found.cpu[ClusterMeasure.STOCK] = used(before, self.benchmark_cluster.cpu_s())
        await asyncio.gather(*(self.cluster.delete(PODS, name, grace_s=0) for name in names))
        await self._until_no_pods()

    async def gang(self, daemon: Daemon, found: ClusterResults) -> None:
        """Measure a gang: many workers that start together or not at all."""
        n = self.size.n_gang
        began_s = perf_counter()
        [job] = await submitted(daemon, [request(gpus=f"{n}", per_worker=1)])
        await self._until_running(n, within_s=FILL_S)
        found.figures[ClusterMeasure.GANG] = Figure(perf_counter() - began_s, "s", f"{n} workers")
        await asyncio.to_thread(daemon.client.cancel, job)
        await self._until_no_pods()

    async def fill(self, daemon: Daemon, found: ClusterResults) -> list[str]:
        before, own_s, began_s = self.benchmark_cluster.cpu_s(), daemon.cpu_s(), perf_counter()
        jobs: list[str] = []
        for first in range(0, self.size.n_gpus, N_IN_BATCH):
            n = min(N_IN_BATCH, self.size.n_gpus - first)
            jobs += await submitted(daemon, [request(gpus="1")] * n)
        await self._until_running(self.size.n_gpus, within_s=FILL_S)
        found.figures[ClusterMeasure.FILL] = Figure(perf_counter() - began_s, "s")
        own = {"rota": daemon.cpu_s() - own_s}
        found.cpu[ClusterMeasure.FILL] = {**own, **used(before, self.benchmark_cluster.cpu_s())}
        return jobs

    async def takeovers(self, daemon: Daemon, found: ClusterResults) -> None:
        """The slowest of several preemptions, each with a higher priority than all before."""
        times: list[float] = []
        for priority in range(1, N_TAKEOVERS + 1):
            began_s = perf_counter()
            [job] = await submitted(daemon, [request(gpus="1", priority=priority)])
            await self.pod_watch.until(_has_pod_of(job), what="a takeover", within_s=ANSWER_S)
            times.append(perf_counter() - began_s)
        found.figures[ClusterMeasure.TAKEOVER] = Figure(max(times), "s", f"worst of {len(times)}")

    async def answers(self, daemon: Daemon, found: ClusterResults) -> None:
        """The slowest of several answers: gangs that can never run, and gangs that have to wait."""
        impossible = request(gpus="80", per_worker=2 * self.size.gpus)
        times = [await asyncio.to_thread(_refused_s, daemon, impossible) for _ in range(N_ANSWERS)]
        found.figures[ClusterMeasure.IMPOSSIBLE] = Figure(max(times), "s", f"worst of {len(times)}")
        crowded = request(gpus="80", per_worker=self.size.gpus)
        times = [await asyncio.to_thread(_explained_s, daemon, crowded) for _ in range(N_ANSWERS)]
        found.figures[ClusterMeasure.CROWDED] = Figure(max(times), "s", f"worst of {len(times)}")

    async def handover(self, leader: Daemon, found: ClusterResults, *, standby: Daemon) -> None:
        """Kill the leader and measure until the next one releases a held job."""
        await _until_idle(standby)
        held = request(gpus="1", priority=N_TAKEOVERS + 1, hold=True)
        [job] = await submitted(leader, [held])
        leader.kill()
        began_s = perf_counter()
        await asyncio.to_thread(_release, standby, job)
        await self.pod_watch.until(_has_pod_of(job), what="a handover", within_s=ANSWER_S)
        found.figures[ClusterMeasure.HANDOVER] = Figure(perf_counter() - began_s, "s")

    async def _until_running(self, n: int, *, within_s: float) -> None:
        await self.pod_watch.until(
            lambda running: len(running) >= n, what=f"{n:,} running pods", within_s=within_s
        )

    async def _until_no_pods(self) -> None:
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        await asyncio.to_thread(
            until,
            lambda: not self.benchmark_cluster.api.items(path),
            "the end of all pods",
            limit_s=CLEAR_S,
        )


def memory(daemon: Daemon, found: ClusterResults) -> None:
    found.figures[ClusterMeasure.MEMORY] = Figure(daemon.resident_bytes() / MIB, "MiB")


def request(*, gpus: str, per_worker: int = 0, priority: int = 0, hold: bool = False) -> JobRequest:
    return JobRequest(
        command=COMMAND, gpus=gpus, gpus_per_worker=per_worker, priority=priority, hold=hold
    )


async def submitted(daemon: Daemon, requests: Sequence[JobRequest]) -> list[str]:
    return await asyncio.to_thread(daemon.client.submit_many, requests)


def used(before: Mapping[str, float], after: Mapping[str, float]) -> Mapping[str, float]:
    return {name: after[name] - before[name] for name in after}


async def _until_idle(daemon: Daemon) -> None:
    """Wait until a new standby is idle, as it would be before a real failure."""
    async with asyncio.timeout(ANSWER_S):
        used_s, before_s = math.inf, daemon.cpu_s()
        while used_s > IDLE_S:
            await asyncio.sleep(LOOK_S)
            now_s = daemon.cpu_s()
            used_s, before_s = now_s - before_s, now_s


def _release(daemon: Daemon, job: str) -> None:
    """Release a job as soon as the daemon leads."""

    def is_done() -> bool:
        try:
            daemon.client.release(job)
        except (NoDaemonError, UnavailableError):
            return False
        return True

    wait_until(is_done, what="a handover", every_s=POLL_S, within_s=HANDOVER_S)


def _refused_s(daemon: Daemon, impossible: JobRequest) -> float:
    began_s = perf_counter()
    try:
        daemon.client.submit(impossible)
    except UserError:
        return perf_counter() - began_s
    raise RuntimeError("a gang that can never run was accepted")


def _explained_s(daemon: Daemon, crowded: JobRequest) -> float:
    began_s = perf_counter()
    job = daemon.client.submit(crowded)
    # A reason that the job was not considered yet does not count.
    wait_until(
        lambda: daemon.client.show(job).job.reason not in ("", str(WaitsForARound())),
        what="a reason",
        every_s=POLL_S,
        within_s=ANSWER_S,
    )
    took_s = perf_counter() - began_s
    daemon.client.cancel(job)
    return took_s


def _has_pod_of(job: str) -> Callable[[set[str]], bool]:
    prefix = f"rota-{job}-"
    return lambda running: any(name.startswith(prefix) for name in running)
