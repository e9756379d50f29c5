"""People whom a cluster knows: by a real API server's word, at a real daemon's door."""

import asyncio
import subprocess
from pathlib import Path

import httpx2
import pytest
import yaml

from rota.client import Client
from rota.engines.kubernetes.api import connect
from rota.engines.kubernetes.reviews import Person, TokenReviews
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.daemon import daemon
from tests.tidy.tree import ROOT


def reviewed(
    cluster: Cluster, *tokens: str, audiences: tuple[str, ...] = ()
) -> list[Person | None]:
    async def run() -> list[Person | None]:
        there = connect(cluster.kubeconfig)
        try:
            reviews = TokenReviews(there, audiences=audiences)
            return [await reviews.person(token) for token in tokens]
        finally:
            await there.close()

    return asyncio.run(run())


def account_token(cluster: Cluster, namespace: str, **spec: object) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    return cluster.api.create(path, {"spec": spec})["status"]["token"]


def token_of(kubeconfig: Path) -> str:
    return yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]


@pytest.fixture
def person(cluster: Cluster) -> tuple[str, Path]:
    if cluster.ours is None:
        pytest.skip("a given cluster's people are not ours to borrow")
    return cluster.person()


def test_the_cluster_says_who_somebody_is(
    cluster: Cluster, namespace: str, person: tuple[str, Path]
) -> None:
    name, kubeconfig = person
    account = account_token(cluster, namespace)
    someone, pod, nobody = reviewed(cluster, token_of(kubeconfig), account, "wrong")
    assert someone is not None
    assert (someone.name, someone.username) == (name, name)
    assert pod is not None
    assert pod.name == f"sa.{namespace}.default"
    assert f"system:serviceaccounts:{namespace}" in pod.groups
    assert nobody is None


def test_a_token_that_is_meant_for_another_opens_nothing(cluster: Cluster, namespace: str) -> None:
    token = account_token(cluster, namespace, audiences=["somebody-else"])
    assert reviewed(cluster, token) == [None]
    ours = account_token(cluster, namespace, audiences=["rota"])
    [person] = reviewed(cluster, ours, audiences=("rota",))
    assert person is not None


def test_a_daemon_lets_the_clusters_people_in(
    cluster: Cluster, namespace: str, person: tuple[str, Path], tmp_path: Path
) -> None:
    cluster.api.exchange("GET", "/readyz", None)
    apply = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "apply", "-f"]
    crd = ROOT / "deploy" / "kubernetes" / "base" / "crd.yaml"
    subprocess.run([*apply, str(crd)], check=True, capture_output=True)
    name, kubeconfig = person
    settings = {"ROTA_ADMIN_GROUPS": f"system:serviceaccounts:{namespace}"}
    with daemon(cluster.kubeconfig, namespace, tmp_path, **settings) as url:
        with Client(url, token=token_of(kubeconfig)) as rota:
            assert rota.me() == name
            with pytest.raises(Exception, match="only an administrator may"):
                rota.set_policy("fifo")
        with Client(url, token=account_token(cluster, namespace)) as admin:
            assert admin.me() == f"sa.{namespace}.default"
            assert admin.set_policy("fifo") == "fifo"
        wrong = {"Authorization": "Bearer wrong"}
        assert httpx2.get(f"{url}/v1/me", headers=wrong).status_code == 401
    assert token_of(kubeconfig) not in (tmp_path / "log").read_text()
