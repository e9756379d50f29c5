"""Shared GPUs: the id that a placeholder pod reports, and failures of placeholder pods."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace

import pytest
from aiohttp import web

from rota.core.model.allocation import Slot
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.gpu_sharing.holders import GpuHolderError, GpuHolders
from rota.engines.kubernetes.gpu_sharing.placeholder_pod import can_be_shared, placeholder
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from tests.support.kube_objects import WORKER, container
from tests.unit.kube.test_client import with_server

PLACEMENT = PodPlacement(WORKER, 0, 0, (Slot(NodeId("n1"), (1,), 20 * GIB),))
OTHER = replace(PLACEMENT, worker=replace(WORKER, job_id=JobId("other")))
SETTINGS = KubernetesSettings(stuck_after_s=0.0)


def held(line: str) -> str:
    """The name that a sharer is told, where the holder of its card says this."""
    holder = placeholder(("n1", 1), WORKER, settings=SETTINGS)
    holder["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
    holder["status"] = {"phase": "Running"}
    names: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            return web.Response(text=f"2026-11-16T08:00:00Z {line}\n")
        return web.Response(text=json.dumps(holder))

    async def play(cluster: KubeClient) -> None:
        names.append(await GpuHolders(cluster, SETTINGS, pod_tracker=PodTracker()).hold(PLACEMENT))

    asyncio.run(with_server(answer, play))
    return names[0]


def test_the_gpu_id_comes_from_the_output_of_the_placeholder() -> None:
    assert held("GPU-1234") == "GPU-1234"


def test_a_worker_with_shares_of_two_gpus_gets_both_ids() -> None:
    """Each GPU has a placeholder pod of its own, with a name of its own."""
    names: list[str] = []
    placement = replace(PLACEMENT, allocation=(Slot(NodeId("n1"), (1, 3), 20 * GIB),))

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.removesuffix("/log").rpartition("/")[2]
        index = int(name.rpartition("-")[2])
        if request.path.endswith("/log"):
            return web.Response(text=f"2026-11-16T08:00:00Z GPU-{index}\n")
        holder = placeholder(("n1", index), WORKER, settings=SETTINGS)
        assert holder["metadata"]["name"] == name
        holder["metadata"] |= {"uid": f"u{index}", "resourceVersion": "1"}
        holder["status"] = {"phase": "Running"}
        return web.Response(text=json.dumps(holder))

    async def play(cluster: KubeClient) -> None:
        holders = GpuHolders(cluster, SETTINGS, pod_tracker=PodTracker())
        names.append(await holders.hold(placement))
        assert {each.uid for each in holders.pop_unused()} == {"u1", "u3"}

    asyncio.run(with_server(answer, play))
    assert names == ["GPU-1,GPU-3"]


@pytest.mark.parametrize(
    "line", ["", "sh: 1: nvidia-smi: not found", "/var/run/nvidia-container-devices"]
)
def test_a_placeholder_without_an_id_fails_its_workers_with_a_hint(line: str) -> None:
    """Otherwise they would get an error message as GPU id, or restart forever."""
    with pytest.raises(GpuHolderError, match="does not report the id of its GPU") as refused:
        held(line)
    problem = refused.value.problem
    assert problem is not None
    assert not problem.is_transient
    assert "NVIDIA_VISIBLE_DEVICES" in problem.hint


def test_a_problem_of_a_placeholder_is_reported_once() -> None:
    holder = placeholder(("n1", 1), WORKER, settings=SETTINGS)
    holder["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
    holder["status"] = {"phase": "Pending"} | container(
        waiting={"reason": "ErrImagePull", "message": "no such host"}
    )

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(holder)

    async def play(cluster: KubeClient) -> None:
        gpu_holders = GpuHolders(
            cluster, replace(SETTINGS, stuck_after_s=120.0), pod_tracker=PodTracker()
        )
        waiting = [asyncio.create_task(gpu_holders.hold(each)) for each in (PLACEMENT, OTHER)]
        found: dict[WorkerId, str] = {}
        while len(found) < len(waiting):
            await asyncio.sleep(0)
            found |= gpu_holders.unreported()
        words = "GPU 1 of n1 cannot be shared: problem of its placeholder pod: "
        words += "its image cannot be pulled: no such host"
        assert found == {PLACEMENT.worker: words, OTHER.worker: words}
        assert gpu_holders.unreported() == {}
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(with_server(answer, play))


def test_a_quota_refusal_fails_all_waiting_workers() -> None:
    """Only the first of them creates the placeholder pod; the others would wait forever."""
    refused = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: none"}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(refused, status=403)

    async def play(cluster: KubeClient) -> None:
        gpu_holders = GpuHolders(cluster, SETTINGS, pod_tracker=PodTracker())
        ends = [gpu_holders.hold(each) for each in (PLACEMENT, OTHER)]
        first, other = await asyncio.gather(*ends, return_exceptions=True)
        assert isinstance(first, ApiError)
        assert isinstance(other, GpuHolderError)
        assert "exceeded quota" in str(first)
        assert "exceeded quota" in str(other)
        assert other.problem is not None
        assert other.problem.is_transient
        assert gpu_holders.pop_unused() == []

    asyncio.run(with_server(answer, play))


def test_only_nvidia_gpus_can_be_shared() -> None:
    assert all(map(can_be_shared, ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]))
    assert not can_be_shared("amd.com/gpu")


def test_two_placeholders_with_one_gpu_are_refused() -> None:
    """A device plugin that gives two GPUs one id: their sharers would be on the same GPU."""
    placement = replace(PLACEMENT, allocation=(Slot(NodeId("n1"), (1, 3), 20 * GIB),))

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.removesuffix("/log").rpartition("/")[2]
        if request.path.endswith("/log"):
            return web.Response(text="2026-11-16T08:00:00Z GPU-1\n")
        holder = placeholder(("n1", int(name[-1])), WORKER, settings=SETTINGS)
        holder["metadata"] |= {"uid": name, "resourceVersion": "1"}
        holder["status"] = {"phase": "Running"}
        return web.Response(text=json.dumps(holder))

    async def play(cluster: KubeClient) -> None:
        holders = GpuHolders(cluster, SETTINGS, pod_tracker=PodTracker())
        with pytest.raises(GpuHolderError, match="reports GPU GPU-1, which the placeholder pod"):
            await holders.hold(placement)

    asyncio.run(with_server(answer, play))


def test_endless_output_of_a_placeholder_is_not_read_to_its_end() -> None:
    holder = placeholder(("n1", 1), WORKER, settings=SETTINGS)
    holder["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
    holder["status"] = {"phase": "Running"}
    ends: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return web.json_response(holder)
        stream = web.StreamResponse()
        await stream.prepare(request)
        with suppress(ConnectionError):
            for _ in range(1000):
                await stream.write(b"no newline " * 10_000)
            ends.append("read to its end")
        return stream

    async def play(cluster: KubeClient) -> None:
        with pytest.raises(GpuHolderError, match="does not report the id of its GPU"):
            await GpuHolders(cluster, SETTINGS, pod_tracker=PodTracker()).hold(PLACEMENT)

    asyncio.run(with_server(answer, play))
    assert ends == []
