"""What `benchmarks.kubernetes` measures, and how."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter

from benchmarks.one_box_measures import MIB, Figure
from benchmarks.peers.base import wait_until
from benchmarks.scale.daemon import Daemon
from benchmarks.scale.ground import Ground
from benchmarks.scale.sight import Sight, plain_pod
from rota.client import JobRequest
from rota.client.find import NoDaemonError
from rota.core.reasons import WaitsForARound
from rota.engines.kubernetes.api import PODS, Cluster
from rota.errors import UnavailableError, UserError
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


class What(Enum):
    """A row: what is measured, the aim, and what KAI reports of the same."""

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
class Size:
    n_nodes: int = 500
    gpus: int = 8
    n_gang: int = 512

    @property
    def n_gpus(self) -> int:
        return self.n_nodes * self.gpus


@dataclass(slots=True)
class Found:
    figures: dict[What, Figure] = field(default_factory=dict[What, Figure])
    cpu: dict[What, Mapping[str, float]] = field(default_factory=dict[What, Mapping[str, float]])
    """What each process used meanwhile."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where somebody stands who measures."""

    ground: Ground
    cluster: Cluster
    sight: Sight
    size: Size

    async def stock(self, found: Found) -> None:
        """What the cluster can do without us."""
        found.figures[What.LOAD] = Figure(os.getloadavg()[0], "")
        names = [f"plain-{number}" for number in range(self.size.n_gpus)]
        before, began_s = self.ground.cpu_s(), perf_counter()
        await asyncio.gather(*(self.cluster.create(PODS, plain_pod(name)) for name in names))
        await self._until_running(len(names), within_s=FILL_S)
        found.figures[What.STOCK] = Figure(perf_counter() - began_s, "s")
        found.cpu[What.STOCK] = used(before, self.ground.cpu_s())
        await asyncio.gather(*(self.cluster.delete(PODS, name, grace_s=0) for name in names))
        await self._until_no_pods()

    async def gang(self, daemon: Daemon, found: Found) -> None:
        """Many workers that start together or not at all."""
        n = self.size.n_gang
        began_s = perf_counter()
        [job] = await submitted(daemon, [request(gpus=f"{n}", per_worker=1)])
        await self._until_running(n, within_s=FILL_S)
        found.figures[What.GANG] = Figure(perf_counter() - began_s, "s", f"{n} workers")
        await asyncio.to_thread(daemon.client.cancel, job)
        await self._until_no_pods()

    async def fill(self, daemon: Daemon, found: Found) -> list[str]:
        before, own_s, began_s = self.ground.cpu_s(), daemon.cpu_s(), perf_counter()
        jobs: list[str] = []
        for first in range(0, self.size.n_gpus, N_IN_BATCH):
            n = min(N_IN_BATCH, self.size.n_gpus - first)
            jobs += await submitted(daemon, [request(gpus="1")] * n)
        await self._until_running(self.size.n_gpus, within_s=FILL_S)
        found.figures[What.FILL] = Figure(perf_counter() - began_s, "s")
        own = {"rota": daemon.cpu_s() - own_s}
        found.cpu[What.FILL] = {**own, **used(before, self.ground.cpu_s())}
        return jobs

    async def takeovers(self, daemon: Daemon, found: Found) -> None:
        """The worst of some, each of a higher priority than all before."""
        times: list[float] = []
        for priority in range(1, N_TAKEOVERS + 1):
            began_s = perf_counter()
            [job] = await submitted(daemon, [request(gpus="1", priority=priority)])
            await self.sight.until(_has_pod_of(job), what="a takeover", within_s=ANSWER_S)
            times.append(perf_counter() - began_s)
        found.figures[What.TAKEOVER] = Figure(max(times), "s", f"worst of {len(times)}")

    async def answers(self, daemon: Daemon, found: Found) -> None:
        """The worst of some: gangs that no node could take, and gangs that have to wait."""
        impossible = request(gpus="80", per_worker=2 * self.size.gpus)
        times = [await asyncio.to_thread(_refused_s, daemon, impossible) for _ in range(N_ANSWERS)]
        found.figures[What.IMPOSSIBLE] = Figure(max(times), "s", f"worst of {len(times)}")
        crowded = request(gpus="80", per_worker=self.size.gpus)
        times = [await asyncio.to_thread(_explained_s, daemon, crowded) for _ in range(N_ANSWERS)]
        found.figures[What.CROWDED] = Figure(max(times), "s", f"worst of {len(times)}")

    async def handover(self, leader: Daemon, found: Found, *, standby: Daemon) -> None:
        """A job that was held is let go, by whoever answers."""
        await _until_idle(standby)
        held = request(gpus="1", priority=N_TAKEOVERS + 1, hold=True)
        [job] = await submitted(leader, [held])
        leader.kill()
        began_s = perf_counter()
        await asyncio.to_thread(_release, standby, job)
        await self.sight.until(_has_pod_of(job), what="a handover", within_s=ANSWER_S)
        found.figures[What.HANDOVER] = Figure(perf_counter() - began_s, "s")

    async def _until_running(self, n: int, *, within_s: float) -> None:
        await self.sight.until(
            lambda running: len(running) >= n, what=f"{n:,} running pods", within_s=within_s
        )

    async def _until_no_pods(self) -> None:
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        await asyncio.to_thread(
            until, lambda: not self.ground.api.items(path), "the end of all pods", limit_s=CLEAR_S
        )


def memory(daemon: Daemon, found: Found) -> None:
    found.figures[What.MEMORY] = Figure(daemon.resident_bytes() / MIB, "MiB")


def request(*, gpus: str, per_worker: int = 0, priority: int = 0, hold: bool = False) -> JobRequest:
    return JobRequest(
        command=COMMAND, gpus=gpus, gpus_per_worker=per_worker, priority=priority, hold=hold
    )


async def submitted(daemon: Daemon, requests: Sequence[JobRequest]) -> list[str]:
    return await asyncio.to_thread(daemon.client.submit_many, requests)


def used(before: Mapping[str, float], after: Mapping[str, float]) -> Mapping[str, float]:
    return {name: after[name] - before[name] for name in after}


async def _until_idle(daemon: Daemon) -> None:
    """A standby is warm when it matters: it has had all the time before."""
    async with asyncio.timeout(ANSWER_S):
        used_s, before_s = math.inf, daemon.cpu_s()
        while used_s > IDLE_S:
            await asyncio.sleep(LOOK_S)
            now_s = daemon.cpu_s()
            used_s, before_s = now_s - before_s, now_s


def _release(daemon: Daemon, job: str) -> None:
    """As soon as it commands."""

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
    # That nobody has looked at it yet is no answer.
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
