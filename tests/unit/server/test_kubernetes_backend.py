"""The URL of a daemon for pods, and the claims of its own pod."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from rota.api.listeners import TcpAddress
from rota.kube.client import KubeClient
from rota.kube.resources import Object, ResourceKind
from rota.server.kubernetes_backend import can_be_reached, url_of
from rota.server.leader_label import VARIABLE, own_claims


def test_the_url_is_advertise_then_the_service_then_the_listen_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert url_of("", None) == ""
    assert url_of("", TcpAddress("10.0.0.1", 8800)) == "http://10.0.0.1:8800"
    monkeypatch.setenv("ROTA_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("ROTA_SERVICE_PORT", "8800")
    assert url_of("", TcpAddress("0.0.0.0", 8800)) == "http://10.96.0.7:8800"
    assert url_of("https://rota.lab", TcpAddress("0.0.0.0", 8800)) == "https://rota.lab"


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
def test_loopback_and_unspecified_addresses_cannot_be_reached(url: str, can: bool) -> None:
    assert can_be_reached(url) == can


class Here:
    """A cluster in which we run as the pod rota-1, with some volumes."""

    access = SimpleNamespace(namespace="lab")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    async def get(self, kind: ResourceKind, name: str) -> Object:
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
def test_own_claims_are_the_claims_of_the_daemon_pod(
    monkeypatch: pytest.MonkeyPatch, pod: str, namespace: str, claims: set[str]
) -> None:
    monkeypatch.setenv(VARIABLE, pod)
    assert asyncio.run(own_claims(cast(KubeClient, Here(namespace)))) == claims
