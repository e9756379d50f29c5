"""Shared GPUs whose placeholder pods are deleted or fail."""

import asyncio
from pathlib import Path

import pytest

from rota.core.model.commands import StopWorkers
from rota.core.model.events import WorkersExited, WorkersHindered, WorkersLost
from rota.core.model.job import JobId
from rota.core.model.units import GIB
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.kube.resources import PODS
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.images import BARE
from tests.kubernetes.support import pod_programs
from tests.kubernetes.test_engine import (
    JOB,
    PATIENCE_S,
    WAITS,
    Lab,
    Stage,
    card,
    is_empty,
    stage,
    until,
)

HALF = card(0, share_bytes=20 * GIB)


@pytest.fixture
def play(cards: Cluster, namespace: str, tmp_path: Path) -> Stage:
    return stage(cards, namespace, tmp_path)


def test_workers_without_a_placeholder_are_lost(play: Stage, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), HALF)
        await lab.started()
        await lab.engine.close()
        [holder] = await lab.placeholders()
        await lab.cluster.delete(PODS, holder["metadata"]["name"], grace_s=0)
        await until(lambda: is_empty(lab.placeholders()))
        heir = KubernetesEngine(lab.cluster, pod_programs.SETTINGS, root=tmp_path / "heir")
        await heir.start(lab.facts.put_nowait)
        await heir.adopt()
        assert "placeholder pod of its shared GPU" in (await lab.told(WorkersLost)).reason
        await heir.close()

    play(scenario)


def test_the_next_daemon_deletes_unused_placeholders(play: Stage, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), HALF)
        await lab.started()
        await lab.engine.close()
        [worker] = await lab.pods_of(attempt=1)
        name = worker["metadata"]["name"]
        await lab.cluster.patch(PODS, name, body={"metadata": {"finalizers": None}})
        await lab.cluster.delete(PODS, name, grace_s=0)
        await until(lambda: is_empty(lab.pods_of(attempt=1)))
        heir = KubernetesEngine(lab.cluster, pod_programs.SETTINGS, root=tmp_path / "heir")
        await heir.start(lab.facts.put_nowait)
        await until(lambda: is_empty(lab.placeholders()))
        await heir.close()

    play(scenario)


def test_an_evicted_placeholder_is_deleted(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), HALF)
        await lab.started()
        [holder] = await lab.placeholders()
        deadline = {"spec": {"activeDeadlineSeconds": 1}}
        await lab.cluster.patch(PODS, holder["metadata"]["name"], body=deadline)
        assert "placeholder pod of its shared GPU" in (await lab.told(WorkersLost)).reason
        await until(lambda: is_empty(lab.placeholders()))

    play(scenario)


def test_a_worker_stopped_while_it_waits_for_a_gpu_leaves_nothing(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), HALF)
        await until(lab.placeholders)
        await lab.engine.apply(StopWorkers(JOB, 1, (0,), 30.0))
        assert (await lab.told(WorkersExited)).codes == {0: 143}
        async with asyncio.timeout(10.0):
            await until(lambda: is_empty(lab.placeholders()))

    play(scenario, placeholder_image=BARE)


def test_a_failed_placeholder_is_reported_to_all_waiting_workers(play: Stage) -> None:
    other = JobId("other")

    async def scenario(lab: Lab) -> None:
        for job in (JOB, other):
            await lab.start(pod_programs.program(WAITS), HALF, job=job)
        ends, hindered = dict[JobId, WorkersExited](), dict[JobId, str]()
        async with asyncio.timeout(PATIENCE_S):
            while len(ends) < len((JOB, other)):
                fact = await lab.facts.get()
                if isinstance(fact, WorkersHindered):
                    assert fact.job_id not in ends
                    hindered[fact.job_id] = fact.reason
                elif isinstance(fact, WorkersExited):
                    ends[fact.job_id] = fact
        assert hindered.keys() == ends.keys(), "told while they wait"
        assert all("cannot be shared" in reason for reason in hindered.values())
        assert [end.codes for end in ends.values()] == [{0: 126}] * 2
        for reason in (end.reason for end in ends.values()):
            assert '"sh"' in reason
            assert "placeholder_image" in reason
        await until(lambda: is_empty(lab.placeholders()))

    play(scenario, placeholder_image=BARE, stuck_after_s=3.0)
