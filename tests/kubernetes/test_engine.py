"""The Kubernetes engine on a real API server with real pods."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.commands import KillWorkers, ReportWorkers, StartWorkers, StopWorkers
from rota.core.model.events import (
    Event,
    NodeSeen,
    WorkersExited,
    WorkersFound,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import LogQuery, Mount, Program, WorkerId
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.engines.kubernetes.pods.naming import ATTEMPT, FINALIZER, ROLE
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube import client, resources
from rota.kube.errors import ApiError
from rota.kube.resources import NODES, PODS, Object, ResourceScope
from tests.kubernetes.cluster.api import until as until_so
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.layout import CARDS_PER_NODE, NODE
from tests.kubernetes.support import pod_programs
from tests.support.seed_counts import only_long
from tests.support.timeouts import PATIENCE_S

JOB = JobId("job")
E = TypeVar("E", bound=Event)
WAITS = "import time; time.sleep(1000)"


@dataclass
class Lab:
    """An engine and its events."""

    engine: KubernetesEngine
    cluster: client.KubeClient
    facts: asyncio.Queue[Event]

    async def start(self, program: Program, *slots: Slot, job: JobId = JOB) -> None:
        here = tuple(replace(slot, node=NodeId(NODE)) for slot in slots)
        await self.engine.apply(StartWorkers(job, 1, 0, here), program)

    async def told(self, kind: type[E], *, job: JobId = JOB) -> E:
        """The next event of this kind about this job, or about a node."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                fact = await self.facts.get()
                if isinstance(fact, kind) and getattr(fact, "job_id", job) == job:
                    return fact

    async def started(self, n: int = 1, *, job: JobId = JOB) -> None:
        seen: frozenset[int] = frozenset()
        while len(seen) < n:
            seen |= (await self.told(WorkersStarted, job=job)).workers

    async def pods(self) -> list[Object]:
        return (await self.cluster.list(PODS, ResourceScope(self.cluster.namespace)))[0]

    async def pods_of(self, attempt: int) -> list[Object]:
        found = await self.pods()
        return [pod for pod in found if pod["metadata"]["labels"].get(ATTEMPT) == str(attempt)]

    async def placeholders(self) -> list[Object]:
        return [pod for pod in await self.pods() if ROLE in pod["metadata"]["labels"]]

    async def output(self, worker: int = 0, *, job: JobId = JOB) -> bytes:
        found = self.engine.logs(WorkerId(job, 1, worker), LogQuery(follow=True))
        async with asyncio.timeout(PATIENCE_S):
            return b"".join([chunk.output async for chunk in found])


Play = Callable[[Lab], Awaitable[None]]
Stage = Callable[..., None]


@pytest.fixture
def play(cards: Cluster, namespace: str, tmp_path: Path) -> Stage:
    """Run a scenario with its own engine."""
    return stage(cards, namespace, tmp_path)


@pytest.fixture
def play_alone(whole_cluster: Cluster, namespace: str, tmp_path: Path) -> Stage:
    return stage(whole_cluster, namespace, tmp_path)


def stage(cluster: Cluster, namespace: str, root: Path) -> Stage:
    async def run(scenario: Play, settings: KubernetesSettings) -> None:
        there = client.connect(cluster.kubeconfig, namespace=namespace)
        facts: asyncio.Queue[Event] = asyncio.Queue()
        engine = KubernetesEngine(there, settings, root=root)
        try:
            await engine.start(facts.put_nowait)
            await scenario(Lab(engine, there, facts))
        finally:
            await engine.close()
            await there.close()

    def play(scenario: Play, **settings: object) -> None:
        asyncio.run(run(scenario, replace(pod_programs.SETTINGS, **settings)))

    return play


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():  # noqa: ASYNC110 - what is waited for is in the cluster
            await asyncio.sleep(0.1)


async def is_empty(found: Awaitable[list[Object]]) -> bool:
    return not await found


async def is_one(found: Awaitable[list[str]]) -> bool:
    return len(await found) == 1


async def has_counted(quota: Awaitable[Object]) -> bool:
    return "used" in (await quota).get("status", {})


def card(*gpus: int, share_bytes: int = 0) -> Slot:
    return Slot(NodeId(NODE), gpus, share_bytes)


def test_the_token_is_in_a_secret_that_lives_as_long_as_its_pods(
    cluster: Cluster, play: Stage
) -> None:
    async def scenario(lab: Lab) -> None:
        def secrets() -> list[str]:
            path = f"/api/v1/namespaces/{lab.cluster.namespace}/secrets"
            names = [each["metadata"]["name"] for each in cluster.api.get(path)["items"]]
            return [name for name in names if name.startswith("rota-token-")]

        async def n_secrets() -> int:
            return len(await asyncio.to_thread(secrets))

        program = pod_programs.program("import os; print(os.environ['ROTA_TOKEN'])")
        program = replace(program, env={**program.env, "ROTA_TOKEN": "a-$(secret)"})
        await lab.start(program, card(), card())
        assert (await lab.told(WorkersExited)).codes
        assert await lab.output() == b"a-$(secret)\n"
        assert "a-$(secret)" not in str(await lab.pods())
        assert await n_secrets() == 1
        for pod in await lab.pods():
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            await lab.cluster.delete(PODS, name, uid=uid)
            await lab.cluster.remove_finalizer(PODS, name, uid=uid, finalizer=FINALIZER)
        async with asyncio.timeout(PATIENCE_S):
            while await n_secrets():  # noqa: ASYNC110 - the garbage collector is in the cluster
                await asyncio.sleep(0.1)

    play(scenario)


def test_output_is_kept_after_the_pod(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program("print('one'); print('two', end='')"), card())
        assert (await lab.told(WorkersExited)).codes == {0: 0}
        assert await lab.output() == b"one\ntwo"
        await lab.engine.apply(StartWorkers(JOB, 2, 0, (card(),)), pod_programs.program(""))
        assert (await lab.told(WorkersExited)).attempt == 2
        await until(lambda: is_empty(lab.pods_of(attempt=1)))
        assert await lab.output() == b"one\ntwo"

    play(scenario)


def test_workers_reach_the_first_worker(play: Stage) -> None:
    listens = """
import os, socket
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    heard, _ = socket.create_server(place).accept()
    print(heard.recv(100).decode())
else:
    import time
    while True:
        try:
            socket.create_connection(place).send(b"hello")
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
"""

    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(listens), card(0), card(1))
        codes: dict[int, int] = {}
        while len(codes) < 2:
            codes |= (await lab.told(WorkersExited)).codes
        assert codes == {0: 0, 1: 0}
        assert await lab.output(0) == b"hello\n"

    play(scenario)


def test_a_failure_is_reported_after_its_output(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program("print('why'); raise SystemExit(3)"), card())
        assert (await lab.told(WorkersExited)).codes == {0: 3}
        tail = lab.engine.logs(WorkerId(JOB, 1, 0), LogQuery(tail_bytes=100))
        assert b"".join([chunk.output async for chunk in tail]) == b"why\n"

    play(scenario)


def test_an_image_that_does_not_exist_ends_with_a_reason(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(replace(pod_programs.program(""), image="rota.invalid/nothing:1"), card(0))
        told = await lab.told(WorkersExited)
        assert told.codes == {0: 126}
        assert "image cannot be pulled" in told.reason
        assert "pull secret" in told.reason

    play(scenario, stuck_after_s=1.0)


def test_a_claim_that_never_binds_ends_with_a_reason(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        claim = Mount("pvc:missing", "/sets")
        program = pod_programs.program("")
        await lab.start(replace(program, mounts=(*program.mounts, claim)), card(0))
        told = await lab.told(WorkersExited)
        assert told.codes == {0: 126}
        assert "volume is not available" in told.reason
        assert "missing" in told.reason

    play(scenario, stuck_after_s=1.0)


def test_a_quota_refusal_deletes_the_whole_command(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        quotas = resources.ResourceKind("v1", "resourcequotas", "ResourceQuota")
        body = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}}
        await lab.cluster.create(quotas, body)
        await until(lambda: has_counted(lab.cluster.get(quotas, "small")))
        await lab.start(pod_programs.program(WAITS), card(0), card(1), card(2))
        lost: frozenset[int] = frozenset()
        while len(lost) < 3:
            told = await lab.told(WorkersLost)
            assert "exceeded quota" in told.reason
            lost |= told.workers
        assert all("deletionTimestamp" in pod["metadata"] for pod in await lab.pods())
        assert not any(pod["spec"].get("nodeName") for pod in await lab.pods())

    play(scenario)


def test_pod_for_an_occupied_node_is_reported_lost(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.engine.adopt()
        theirs = python_pod("theirs", WAITS, gpus=CARDS_PER_NODE)
        await lab.cluster.create(PODS, theirs)
        while (seen := await lab.told(NodeSeen)).node.gpus or seen.node.id != NODE:
            pass
        await lab.start(pod_programs.program(WAITS), card(0))
        lost = await lab.told(WorkersLost)
        assert "Insufficient nvidia.com/gpu" in lost.reason

    play(scenario, bind_patience_s=1.0)


def test_a_deleted_pod_is_reported(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), card(0))
        await lab.started()
        [pod] = await lab.pods()
        await lab.cluster.delete(PODS, pod["metadata"]["name"])
        told = await lab.told(WorkersExited)
        assert (told.codes, told.reason) == ({0: 143}, "its pod was deleted")
        assert told.is_retriable

    play(scenario)


def test_a_repeated_start_does_not_change_a_pod(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        order, program = StartWorkers(JOB, 1, 0, (card(0),)), pod_programs.program(WAITS)
        await lab.engine.apply(order, program)
        await lab.started()
        [there] = await lab.pods()
        assert "managedFields" not in there["metadata"]
        [late] = lab.engine.render(order, program).values()
        with pytest.raises(ApiError) as refused:
            await lab.cluster.apply(PODS, late)
        assert refused.value.reason == "Invalid"
        assert [each["spec"] for each in await lab.pods()] == [there["spec"]]

    play(scenario)


def test_the_next_daemon_finds_running_and_ended_workers(play: Stage) -> None:
    done = JobId("done")

    async def first(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), card(0))
        await lab.started()
        await lab.start(pod_programs.program("raise SystemExit(5)"), card(1), job=done)
        await lab.told(WorkersExited, job=done)

    async def second(lab: Lab) -> None:
        assert await lab.engine.adopt() == (WorkerId(JOB, 1, 0),)
        told = [await lab.facts.get() for _ in range(2)]
        assert WorkersFound(JOB, 1, frozenset({0})) in told
        assert WorkersExited(done, 1, {0: 5}) in told
        await lab.engine.apply(ReportWorkers(JOB, 1, (0,)))
        assert await lab.told(WorkersStarted) == WorkersStarted(JOB, 1, frozenset({0}))
        await lab.engine.apply(KillWorkers(JOB, 1, (0,)))
        assert (await lab.told(WorkersExited)).codes == {0: 137}

    play(first)
    play(second)


def test_ended_pods_are_removed(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(""), card())
        assert (await lab.told(WorkersExited)).codes == {0: 0}
        await until(lambda: is_empty(lab.pods()))
        await lab.engine.apply(ReportWorkers(JOB, 1, (0,)))
        assert (await lab.told(WorkersExited)).codes == {0: 0}

    play(scenario, keep_finished_s=0.5)


def test_finalizers_of_others_stay(play: Stage) -> None:
    async def held_by(lab: Lab) -> list[str]:
        [pod] = await lab.pods()
        return pod["metadata"].get("finalizers", [])

    async def scenario(lab: Lab) -> None:
        await lab.start(pod_programs.program(WAITS), card())
        await lab.started()
        [name] = [pod["metadata"]["name"] for pod in await lab.pods()]
        both = {"metadata": {"finalizers": [*await held_by(lab), "lab.example/theirs"]}}
        await lab.cluster.patch(PODS, name, body=both)
        await lab.cluster.delete(PODS, name)
        await lab.told(WorkersExited)
        await until(lambda: is_one(held_by(lab)))
        assert await held_by(lab) == ["lab.example/theirs"]
        await lab.cluster.patch(PODS, name, body={"metadata": {"finalizers": None}})
        await until(lambda: is_empty(lab.pods()))

    play(scenario)


def test_sharing_workers_get_the_id_of_a_held_gpu(play: Stage) -> None:
    says = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True)"
    other = JobId("other")

    async def scenario(lab: Lab) -> None:
        half = card(0, share_bytes=20 * GIB)
        await lab.start(pod_programs.program(f"{says}; {WAITS}"), half)
        await lab.started()
        await lab.start(pod_programs.program(says), half, job=other)
        assert (await lab.told(WorkersExited, job=other)).codes == {0: 0}
        name = await lab.output(job=other)
        assert name.startswith(b"GPU-")
        assert lab.engine.gpus_of_worker(WorkerId(JOB, 1, 0)) == (name.decode().strip(),)
        [holder] = await lab.placeholders()
        assert holder["metadata"]["annotations"]["rota.dev/card"].encode() == name.strip()
        assert holder["spec"]["nodeName"] == NODE
        await lab.engine.apply(StopWorkers(JOB, 1, (0,), 30.0))
        assert (await lab.told(WorkersExited)).codes == {0: 143}
        await until(lambda: is_empty(lab.placeholders()))
        assert await lab.output() == name

    play(scenario)


def test_a_missing_program_is_reported(play: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.start(
            replace(pod_programs.program(""), workdir="/", argv=("/no/such/file.py",)), card()
        )
        assert (await lab.told(WorkersExited)).codes == {0: 2}

    play(scenario)


def test_a_cordon_is_reported_at_once(play_alone: Stage) -> None:
    async def scenario(lab: Lab) -> None:
        await lab.engine.adopt()
        try:
            await lab.cluster.patch(NODES, NODE, body={"spec": {"unschedulable": True}})
            seen = await lab.told(NodeSeen)
            assert (seen.node.id, seen.node.is_closed) == (NODE, True)
        finally:
            await lab.cluster.patch(NODES, NODE, body={"spec": {"unschedulable": None}})
        while (seen := await lab.told(NodeSeen)).node.is_closed:
            pass
        assert len(seen.node.gpus) == CARDS_PER_NODE

    play_alone(scenario)


@only_long
def test_changes_during_an_expired_watch_are_reported_once(
    play_alone: Stage, whole_cluster: Cluster, namespace: str
) -> None:
    there, path = whole_cluster.api, f"/api/v1/namespaces/{namespace}/pods"
    stays, ended, vanished = jobs = [JobId(name) for name in ("stays", "ended", "vanished")]

    def name_of(job: JobId) -> str:
        [name] = [n for n in (each["metadata"]["name"] for each in there.items(path)) if job in n]
        return f"{path}/{name}"

    def happen() -> None:
        """Changes during which this process has no watch."""
        whole_cluster.control.cut_connections()
        there.delete(name_of(ended), grace_s=1)
        there.patch(name_of(vanished), {"metadata": {"finalizers": None}})
        there.delete(name_of(vanished), grace_s=0)
        until_so(lambda: there.get(name_of(ended))["status"]["phase"] == "Failed", "its end")
        whole_cluster.control.forget_history()
        until_so(lambda: there.text("/readyz") == "ok", "the API server")

    async def scenario(lab: Lab) -> None:
        for index, job in enumerate(jobs):
            await lab.start(pod_programs.program(WAITS), card(index), job=job)
            await lab.started(job=job)
        _, version = await lab.cluster.list(PODS, ResourceScope(namespace))
        happen()
        with pytest.raises(ApiError) as refused:
            await anext(lab.cluster.watch(PODS, ResourceScope(namespace), version=version))
        assert refused.value.status == 410
        async with asyncio.timeout(PATIENCE_S):
            told = [await lab.facts.get() for _ in range(2)]
            assert [each.job_id for each in told if isinstance(each, WorkersExited)] == [ended]
            assert [each.job_id for each in told if isinstance(each, WorkersLost)] == [vanished]
            await lab.engine.apply(KillWorkers(stays, 1, (0,)))
            assert await lab.facts.get() == WorkersExited(stays, 1, {0: 137})

    play_alone(scenario)
