"""Which daemon a Service leads to."""

import pytest

from rota.api.leading import VARIABLE, show_who_leads
from rota.engines.kubernetes.api import Cluster
from tests.unit.engines.kubernetes.objects import Object, pod
from tests.unit.engines.kubernetes.test_api import failure, served

PODS = "/api/v1/namespaces/lab/pods"


def listed(*names: str) -> Object:
    items = [{"metadata": {"name": name}} for name in names]
    return {"items": items, "metadata": {"resourceVersion": "1"}}


@pytest.fixture(autouse=True)
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "us")


def test_who_leads_is_the_only_one_with_the_label() -> None:
    """Whoever led before may have gone with its node, and cannot take it off. One may be gone."""

    async def play(cluster: Cluster) -> None:
        await show_who_leads(cluster, leads=True)

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


def test_who_begins_speaks_for_itself_alone() -> None:
    async def play(cluster: Cluster) -> None:
        await show_who_leads(cluster, leads=False)

    assert served([(200, pod("us"))], play) == [f"PATCH {PODS}/us"]
