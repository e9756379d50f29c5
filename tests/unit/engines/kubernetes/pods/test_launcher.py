"""Starting pods: existing pods of an earlier leader are used, foreign pods are not."""

import asyncio
from dataclasses import replace

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.node import NodeId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.gpu_sharing.holders import GpuHolders
from rota.engines.kubernetes.pods import launcher
from rota.engines.kubernetes.pods.launcher import LaunchCallbacks, PodLauncher
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.start_problems import StartProblem
from rota.engines.kubernetes.pods.state import pod_state_of
from rota.engines.kubernetes.pods.termination import PodTermination
from rota.engines.kubernetes.pods.token_secret import secret_of
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube import http
from rota.kube.client import KubeClient
from tests.support.kube_objects import WORKER, Object, pod
from tests.unit.kube.test_client import Answer, failure, served

PLACEMENT = PodPlacement(WORKER, 0, 0, (Slot(NodeId("n2"), (1,)),))
GATED = {"schedulingGates": [{"name": "rota.dev/plan"}]}
TAKEN = failure(422, "Invalid")
FULL = (403, {"code": 403, "reason": "Forbidden", "message": "it exceeded quota: small"})


def brought_up(
    *answers: Answer, is_ours: bool = True, placement: PodPlacement = PLACEMENT
) -> tuple[list[str], list[PodTermination]]:
    """What was asked for, and the verdicts."""
    asked, verdicts, _ = tried(*answers, is_ours=is_ours, placement=placement)
    return asked, verdicts


def tried(
    *answers: Answer,
    is_ours: bool = True,
    placement: PodPlacement = PLACEMENT,
) -> tuple[list[str], list[PodTermination], list[StartProblem | None]]:
    """And what kept it from being: who is told of that wants it no longer."""
    pod_tracker, verdicts, troubles = (
        PodTracker(),
        list[PodTermination](),
        list[StartProblem | None](),
    )

    def see(found: Object) -> None:
        if is_ours:
            pod_tracker.see(found, WORKER)

    def give_up(_: WorkerId, termination: PodTermination) -> None:
        verdicts.append(termination)

    def report_problem(_: WorkerId, problem: StartProblem | None) -> None:
        troubles.append(problem)
        pod_tracker.kill(WORKER)

    async def play(cluster: KubeClient) -> None:
        gpu_holders = GpuHolders(cluster, KubernetesSettings(), pod_tracker=pod_tracker)
        callbacks = LaunchCallbacks(see, report_problem, give_up)
        started = PodLauncher(cluster, pod_tracker, gpu_holders=gpu_holders, callbacks=callbacks)
        launch = started.launch([(placement, pod())], master=WORKER, token="t")
        bringing = asyncio.create_task(launch)
        await asyncio.sleep(0)
        assert started.launching == {WORKER: placement}
        await bringing
        assert started.launching == {}

    asked = served(list(answers), play)
    return [each.partition(" ")[0] for each in asked], verdicts, troubles


def test_an_existing_pod_is_ungated() -> None:
    found = pod(spec=GATED)
    opened = pod(meta={"resourceVersion": "2"})
    asked, verdicts = brought_up(TAKEN, (200, found), (200, opened), is_ours=True)
    assert asked == ["PATCH", "GET", "PATCH"]
    assert verdicts == []


def test_an_invalid_pod_fails_even_if_a_foreign_pod_has_its_name() -> None:
    asked, verdicts = brought_up(TAKEN, (200, pod()), is_ours=False)
    assert asked == ["PATCH", "GET"]
    assert [each.code for each in verdicts] == [126]
    assert "it is Invalid" in verdicts[0].reason


def test_an_invalid_pod_fails() -> None:
    asked, verdicts = brought_up(TAKEN, failure(404, "NotFound"), is_ours=True)
    assert asked == ["PATCH", "GET"]
    assert "it is Invalid" in verdicts[0].reason


def test_a_full_quota_is_no_failure() -> None:
    _, [verdict] = brought_up(FULL)
    assert verdict.is_lost
    assert "exceeded quota: small" in verdict.reason


def test_a_new_worker_refused_by_a_quota_is_retriable() -> None:
    """Otherwise the kernel would start another one at once."""
    _, [verdict] = brought_up(FULL, placement=replace(PLACEMENT, generation=1))
    assert (verdict.code, verdict.is_lost, verdict.is_retriable) == (126, False, True)


def test_an_unavailable_webhook_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.0)
    words = 'Internal error occurred: failed calling webhook "w"'
    down = 500, {"code": 500, "reason": "InternalError", "message": words}
    _, verdicts, [problem] = tried(*[down] * http.MAX_TRIES)
    assert problem == StartProblem(f"the cluster refused: {words}", is_outage=True)
    assert verdicts == []


@pytest.mark.parametrize("away", [failure(503, "ServiceUnavailable"), failure(500, "")])
def test_an_outage_of_the_cluster_is_no_start_problem(
    monkeypatch: pytest.MonkeyPatch, away: Answer
) -> None:
    """The same for an outage of etcd."""
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.0)
    assert tried(*[away] * http.MAX_TRIES)[1:] == ([], [None])


TOKEN = {
    "name": "ROTA_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "rota-token-j", "key": "token"}},
}
NEW = pod(spec=GATED)
NEW["spec"]["containers"][0]["env"].append(TOKEN)
SECRET_EXISTS = failure(409, "AlreadyExists")


@pytest.mark.parametrize("answer", [(201, {}), SECRET_EXISTS], ids=["new", "exists"])
def test_the_secret_is_there_before_the_pod_is_ungated(answer: Answer) -> None:
    """The Secret of a daemon that died before it ungated the pod is used."""
    asked, verdicts, _ = tried((200, NEW), answer, (200, {}))
    assert asked == ["PATCH", "POST", "PATCH"]
    assert verdicts == []


def test_the_secret_belongs_to_the_pods() -> None:
    secret = secret_of([pod_state_of(NEW, WORKER)], "t")
    meta, owner = secret["metadata"], NEW["metadata"]
    assert meta["name"] == "rota-token-j"
    assert meta["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}
    ]
    assert secret["stringData"] == {"token": "t"}


def test_no_pod_starts_without_its_secret() -> None:
    asked, [verdict], _ = tried((200, NEW), failure(403, "Forbidden"))
    assert asked == ["PATCH", "POST"]
    assert verdict.code == 126


def test_a_bug_in_a_start_ends_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the job would be starting for ever, with its GPUs."""

    def fail(*_: object, **__: object) -> Object:
        raise KeyError("spec")

    monkeypatch.setattr(launcher, "ungate_patch", fail)
    verdicts: list[PodTermination] = []
    with pytest.raises(KeyError):
        brought_up_with_a_bug(verdicts)
    assert [each.code for each in verdicts] == [126]
    assert "a bug in rota stopped its start: KeyError: 'spec'" in verdicts[0].reason


def brought_up_with_a_bug(verdicts: list[PodTermination]) -> None:
    pod_tracker = PodTracker()

    def see(found: Object) -> None:
        pod_tracker.see(found, WORKER)

    async def play(cluster: KubeClient) -> None:
        gpu_holders = GpuHolders(cluster, KubernetesSettings(), pod_tracker=pod_tracker)
        callbacks = LaunchCallbacks(see, lambda *_: None, lambda _, found: verdicts.append(found))
        pods = PodLauncher(cluster, pod_tracker, gpu_holders=gpu_holders, callbacks=callbacks)
        await pods.launch([(PLACEMENT, pod())], master=WORKER, token="")

    served([(200, pod(spec=GATED))], play)
