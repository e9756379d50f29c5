"""Where a daemon of a cluster is found, and what it finds where it runs."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from rota.api.cluster_place import can_be_reached, url_of
from rota.api.leading import VARIABLE, own_claims
from rota.engines.kubernetes.api import Cluster, Kind, Object


def test_what_is_said_counts_then_the_service_then_where_we_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert url_of("", "") == ""
    assert url_of("", "10.0.0.1:8800") == "http://10.0.0.1:8800"
    monkeypatch.setenv("ROTA_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("ROTA_SERVICE_PORT", "8800")
    assert url_of("", "0.0.0.0:8800") == "http://10.96.0.7:8800"
    assert url_of("https://rota.lab", "0.0.0.0:8800") == "https://rota.lab"


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("", False),
        ("http://127.0.0.1:8800", False),
        ("http://0.0.0.0:8800", False),
        ("http://[::1]:8800", False),
        ("http://localhost:8800", False),
        ("http://10.96.0.7:8800", True),
        ("https://rota.lab", True),
    ],
)
def test_nobody_else_reaches_what_is_only_here(url: str, can: bool) -> None:
    assert can_be_reached(url) == can


class Here:
    """A cluster in which we run as the pod rota-1, with some volumes."""

    access = SimpleNamespace(namespace="lab")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    async def get(self, kind: Kind, name: str) -> Object:
        assert (kind.kind, name) == ("Pod", "rota-1")
        claims = [{"persistentVolumeClaim": {"claimName": each}} for each in ("rota", "logs")]
        return {"spec": {"volumes": [{"emptyDir": {}}, *claims]}}


@pytest.mark.parametrize(
    ("pod", "namespace", "claims"),
    [
        ("rota-1", "lab", {"rota", "logs"}),
        ("rota-1", "others", set[str]()),
        ("", "lab", set[str]()),
    ],
)
def test_a_daemon_knows_the_claims_that_are_its_own(
    monkeypatch: pytest.MonkeyPatch, pod: str, namespace: str, claims: set[str]
) -> None:
    monkeypatch.setenv(VARIABLE, pod)
    assert asyncio.run(own_claims(cast(Cluster, Here(namespace)))) == claims
