"""Users of the cluster, authenticated by a real API server, at a real daemon."""

import asyncio
import subprocess
from pathlib import Path

import httpx2
import pytest
import yaml

from rota.client import Client
from rota.client.endpoint import Endpoint
from rota.kube.client import connect
from rota.kube.token_review import TokenReviewer, TokenReviewUser
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemons import started_daemon
from tests.tidy.tree import ROOT


def reviewed(
    cluster: Cluster, *tokens: str, audiences: tuple[str, ...] = ()
) -> list[TokenReviewUser | None]:
    async def run() -> list[TokenReviewUser | None]:
        there = connect(cluster.kubeconfig)
        try:
            reviews = TokenReviewer(there, audiences=audiences)
            return [await reviews.authenticate(token) for token in tokens]
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


def test_the_cluster_authenticates_users(
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


def test_a_token_for_another_audience_is_rejected(cluster: Cluster, namespace: str) -> None:
    token = account_token(cluster, namespace, audiences=["somebody-else"])
    assert reviewed(cluster, token) == [None]
    ours = account_token(cluster, namespace, audiences=["rota"])
    [person] = reviewed(cluster, ours, audiences=("rota",))
    assert person is not None


def test_a_daemon_accepts_users_of_the_cluster(
    cluster: Cluster, namespace: str, person: tuple[str, Path], tmp_path: Path
) -> None:
    cluster.api.exchange("GET", "/readyz", None)
    apply = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "apply", "-f"]
    crd = ROOT / "deploy" / "kubernetes" / "base" / "crd.yaml"
    subprocess.run([*apply, str(crd)], check=True, capture_output=True)
    name, kubeconfig = person
    settings = {"ROTA_ADMIN_GROUPS": f"system:serviceaccounts:{namespace}"}
    with started_daemon(cluster.kubeconfig, namespace, tmp_path, **settings) as url:
        endpoint = Endpoint(url=url, allows_plain_http=True)
        with Client(endpoint, token=token_of(kubeconfig), takes_context=False) as rota:
            assert rota.me() == name
            with pytest.raises(Exception, match="only an administrator may"):
                rota.set_policy("fifo")
        with Client(
            endpoint, token=account_token(cluster, namespace), takes_context=False
        ) as admin:
            assert admin.me() == f"sa.{namespace}.default"
            assert admin.set_policy("fifo") == "fifo"
        wrong = {"Authorization": "Bearer wrong"}
        assert httpx2.get(f"{url}/v1/me", headers=wrong).status_code == 401
    assert token_of(kubeconfig) not in (tmp_path / "log").read_text()
