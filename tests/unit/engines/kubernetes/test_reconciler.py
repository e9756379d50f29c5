"""Events of the engine, against a scripted server."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest
from aiohttp import web

from rota.core.model.events import Event, NodeSeen, WorkersExited, WorkersStarted
from rota.engines.kubernetes import reconciler
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.deleter import PodDeleter
from rota.engines.kubernetes.pods.manifest import affinity
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import RotaError
from rota.kube.client import KubeClient
from tests.support.kube_objects import WORKER, Object, container, node, pod
from tests.unit.kube.test_client import with_server

TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}
HERE: Object = {"nodeName": "n1", "affinity": affinity("n1")}
Fact = TypeVar("Fact", bound=Event)


def listed(*objects: Object) -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": list(objects)})


@dataclass
class Stage:
    """A cluster with one pod and one node, and an engine that follows them."""

    engine: KubernetesEngine
    facts: asyncio.Queue[Event] = field(default_factory=asyncio.Queue[Event])
    changes: asyncio.Queue[Object] = field(default_factory=asyncio.Queue[Object])
    asked: list[str] = field(default_factory=list[str])

    def tell(self, kind: str, changed: Object) -> None:
        self.changes.put_nowait({"type": kind, "object": changed})

    async def told(self, kind: type[Fact]) -> Fact:
        while not isinstance(fact := await self.facts.get(), kind):
            pass
        return fact


def staged(
    play: Callable[[Stage], Awaitable[None]], ours: Object, here: Object, *, root: Path
) -> None:
    stages, is_over = list[Stage](), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        is_pods = request.path.endswith("/pods")
        if "watch" in request.query:
            watch = web.StreamResponse()
            await watch.prepare(request)
            while is_pods and (change := await stages[0].changes.get()):
                await watch.write(json.dumps(change).encode() + b"\n")
            await is_over.wait()
            return watch
        if request.path.endswith(("/pods", "/nodes")):
            return listed(ours) if is_pods else listed(here)
        stages[0].asked.append(request.method)
        return web.json_response({"metadata": {}})

    async def on_stage(cluster: KubeClient) -> None:
        stages.append(Stage(KubernetesEngine(cluster, KubernetesSettings(), root=root)))
        [stage] = stages
        try:
            await stage.engine.start(stage.facts.put_nowait)
            await stage.engine.adopt()
            await play(stage)
        finally:
            await stage.engine.close()
            stage.changes.put_nowait({})
            is_over.set()

    asyncio.run(with_server(answer, on_stage))


def test_a_tainted_node_opens_after_a_forced_delete(tmp_path: Path) -> None:
    """Another client removed our finalizer and deleted the pod by force."""
    ours = pod("Running", meta={"finalizers": []}, spec=HERE)

    async def play(stage: Stage) -> None:
        [before] = stage.engine.inventory()
        assert (before.is_cordoned, before.taints) == (True, ())
        stage.tell("DELETED", ours | {"metadata": ours["metadata"] | {"resourceVersion": "2"}})
        fact = await stage.told(NodeSeen)
        assert (fact.node.is_cordoned, len(fact.node.taints)) == (False, 1)

    staged(play, ours, node(taints=(TAINT,)), root=tmp_path)


def test_a_pod_that_cannot_be_read_does_not_end_the_engine(tmp_path: Path) -> None:
    """Another pod is followed. The next daemon would find the same pod, and end as well."""
    other = replace(WORKER, worker=1)
    done = container(terminated={"exitCode": 0})

    async def play(stage: Stage) -> None:
        stage.tell("MODIFIED", pod("Running", meta={"resourceVersion": "later"}, spec=HERE))
        stage.tell("ADDED", pod("Succeeded", worker=other, spec=HERE, status=done))
        assert (await stage.told(WorkersExited)).codes == {1: 0}

    staged(play, pod("Running", spec=HERE), node(), root=tmp_path)


def test_a_bug_in_the_engine_itself_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon must not continue without its engine."""

    def fail(_: PodDeleter) -> None:
        raise ValueError

    async def play(stage: Stage) -> None:
        with pytest.raises(RotaError, match="bug in rota") as broken:
            await stage.engine.broken()
        assert isinstance(broken.value.__cause__, ValueError)

    monkeypatch.setattr(reconciler, "TICK_S", 0.0)
    monkeypatch.setattr(PodDeleter, "clean_up_due", fail)
    staged(play, pod("Running", spec=HERE), node(), root=tmp_path)


def test_a_worker_with_a_placeholder_label_is_still_a_worker(tmp_path: Path) -> None:
    """It is not deleted, and its end is reported."""
    ours = pod("Running", spec=HERE)
    labels = ours["metadata"]["labels"] | {naming.ROLE: naming.PLACEHOLDER}
    edited = pod("Running", meta={"labels": labels, "resourceVersion": "2"}, spec=HERE)
    done = container(terminated={"exitCode": 0})
    over = pod("Succeeded", meta={"labels": labels, "resourceVersion": "3"}, spec=HERE, status=done)

    async def play(stage: Stage) -> None:
        stage.tell("MODIFIED", edited)
        stage.tell("MODIFIED", over)
        assert (await stage.told(WorkersExited)).codes == {0: 0}
        assert "DELETE" not in stage.asked

    staged(play, ours, node(), root=tmp_path)


def test_pods_of_ignored_jobs_are_left_alone_and_counted(tmp_path: Path) -> None:
    ours = pod(
        "Running", spec=HERE, status=container(running={"startedAt": "2026-01-01T00:00:00Z"})
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            raise AssertionError(request.method)
        if "watch" not in request.query:
            return listed(ours) if request.path.endswith("/pods") else listed(node())
        watch = web.StreamResponse()
        await watch.prepare(request)
        await is_over.wait()
        return watch

    is_over = asyncio.Event()

    async def play(cluster: KubeClient) -> None:
        told: list[Event] = []
        engine = KubernetesEngine(cluster, KubernetesSettings(), root=tmp_path)
        await engine.start(told.append)
        [before] = engine.inventory()
        engine.ignore_jobs(frozenset({WORKER.job_id}))
        [after] = engine.inventory()
        assert len(after.gpus) == len(before.gpus) - 1
        assert await engine.adopt() == ()
        assert told == []
        await engine.close()
        is_over.set()

    asyncio.run(with_server(answer, play))


def test_an_external_pod_is_the_worker_of_its_own_job_only(tmp_path: Path) -> None:
    """Whatever its annotation says, also before the jobs are known."""
    external: Object = {**HERE, "schedulerName": "rota"}
    mine, forged = (
        pod(
            "Running",
            meta={
                "name": name,
                "uid": name,
                "annotations": {naming.PLACED: naming.placed_annotation(WORKER, uid=name)},
            },
            spec=external | {"containers": [{"name": "main"}]},
        )
        for name in ("mine", "forged")
    )
    done = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 3}}}]}

    def ended(found: Object, version: str) -> Object:
        meta = found["metadata"] | {"resourceVersion": version}
        return {**found, "metadata": meta, "status": {"phase": "Failed", **done}}

    async def play(stage: Stage) -> None:
        stage.tell("ADDED", mine)
        stage.tell("MODIFIED", ended(forged, "5"))
        stage.tell("ADDED", pod("Running", worker=replace(WORKER, worker=7), spec=HERE))
        assert (await stage.told(WorkersStarted)).workers == {7}
        stage.engine.know_external_pods({WORKER.job_id: "mine/mine"})
        assert (await stage.told(WorkersStarted)).workers == {0}
        stage.tell("MODIFIED", ended(forged, "6"))
        stage.tell("MODIFIED", ended(mine, "7"))
        assert (await stage.told(WorkersExited)).codes == {0: 3}
        assert "DELETE" not in stage.asked

    staged(play, forged, node(), root=tmp_path)
