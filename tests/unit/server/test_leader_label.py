"""The label of the leader's pod."""

import pytest

from rota.kube.client import KubeClient
from rota.server.leader_label import VARIABLE, update_leader_label
from tests.support.kube_objects import Object, pod
from tests.unit.kube.test_client import failure, served

PODS = "/api/v1/namespaces/lab/pods"


def listed(*names: str) -> Object:
    items = [{"metadata": {"name": name}} for name in names]
    return {"items": items, "metadata": {"resourceVersion": "1"}}


@pytest.fixture(autouse=True)
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "us")


def test_the_leader_removes_the_label_of_all_other_pods() -> None:
    """The former leader may be lost with its node and then cannot remove its label. A pod may be
    deleted meanwhile."""

    async def play(cluster: KubeClient) -> None:
        await update_leader_label(cluster, leads=True)

    answers = [
        (200, pod("us")),
        (200, listed("us", "dead", "gone")),
        (200, pod()),
        failure(404, "NotFound"),
    ]
    assert served(answers, play) == [
        f"PATCH {PODS}/us",
        f"GET {PODS}",
        f"PATCH {PODS}/dead",
        f"PATCH {PODS}/gone",
    ]


def test_a_starting_daemon_changes_only_its_own_label() -> None:
    async def play(cluster: KubeClient) -> None:
        await update_leader_label(cluster, leads=False)

    assert served([(200, pod("us"))], play) == [f"PATCH {PODS}/us"]
