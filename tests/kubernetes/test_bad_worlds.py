"""Wrong clocks, expired credentials and outdated CRDs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota.errors import UnavailableError
from tests.kubernetes.cluster import config_files
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemon_process import (
    LEASE_LOST,
    KubernetesDaemonProcess,
    kubernetes_daemon,
)
from tests.kubernetes.support.daemons import DEFINITION
from tests.support.daemon_process import wait_until
from tests.support.seed_counts import only_long

OUTDATED = "CRD for TrainingJobs is of another version"


@pytest.fixture
def kube_daemon(whole_cluster: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(whole_cluster, namespace) as made:
        yield made
        rights = [f"{namespace}-{name}" for name in ("first", "second")]
        made.kubectl("delete", "clusterrolebinding", "--ignore-not-found", *rights)


@only_long
@pytest.mark.parametrize("skew", ["+1h", "-30m"])
def test_job_succeeds_with_a_wrong_clock_of_the_daemon(
    kube_daemon: KubernetesDaemonProcess, skew: str
) -> None:
    kube_daemon.tell(DONT_FAKE_MONOTONIC="1")
    kube_daemon.run_under("faketime", "-f", skew)
    kube_daemon.up()
    job = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(job, "came")
    kube_daemon.kill()
    kube_daemon.up()
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert len(kube_daemon.starts(job)) == 1


def test_outdated_crd_is_reported(kube_daemon: KubernetesDaemonProcess) -> None:
    """A running daemon reports it and takes no job; a starting daemon waits and does not become the
    leader. A submit that is repeated afterwards is one job."""
    older: dict[str, Any] = yaml.safe_load(DEFINITION.read_text())
    [version] = older["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["record"]
    kube_daemon.up()
    kube_daemon.kubectl("apply", "-f", "-", given=older)
    try:
        request = kube_daemon.request("say came", gpus="1")
        with pytest.raises(UnavailableError, match=OUTDATED):
            kube_daemon.client.submit(request, key="repeated")
        wait_until(lambda: OUTDATED in kube_daemon.client.status().trouble, "the reason")
        assert kube_daemon.readiness() == 503
        assert OUTDATED in " ".join(kube_daemon.rota("status").stdout.split())
        kube_daemon.kill()
        kube_daemon.give_up_lease()
        kube_daemon.launch()
        wait_until(lambda: OUTDATED in kube_daemon.standby_says(), "the reason")
        assert kube_daemon.ask_kubectl("get", "lease", "rota").returncode != 0
        assert kube_daemon.live_pods() == []
    finally:
        kube_daemon.kubectl("apply", "-f", str(DEFINITION))
    kube_daemon.ready()
    job = kube_daemon.client.submit(request, key="repeated")
    assert kube_daemon.ends(job).state == "succeeded"
    assert [line.words for line in kube_daemon.heard(job)] == ["came"]


@only_long
def test_expired_credentials_are_reported(kube_daemon: KubernetesDaemonProcess) -> None:
    """The daemon stops leading and reports the reason; with new credentials it continues."""
    kube_daemon.use(credentials(kube_daemon, "first"))
    kube_daemon.up()
    job = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(job, "came")
    kube_daemon.kubectl("delete", "serviceaccount", "first")
    assert not kube_daemon.has_ended()
    assert LEASE_LOST in kube_daemon.log()
    told = len(kube_daemon.log())
    kube_daemon.launch()
    wait_until(lambda: "Unauthorized" in kube_daemon.standby_says(), "the reason")
    kube_daemon.kill()
    lines = [each for each in kube_daemon.log()[told:].splitlines() if "Unauthorized" in each]
    said = [(each["event"], each.get("what")) for each in map(json.loads, lines)]
    assert len(said) == len(set(said)), "once of each thing that is waited for"
    kube_daemon.use(credentials(kube_daemon, "second"))
    kube_daemon.up()
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert len(kube_daemon.starts(job)) == 1


def credentials(kube_daemon: KubernetesDaemonProcess, name: str) -> Path:
    """A kubeconfig of an account with all permissions, as long as the account exists."""
    kube_daemon.kubectl("create", "serviceaccount", name)
    account = f"--serviceaccount={kube_daemon.namespace}:{name}"
    who = f"{kube_daemon.namespace}-{name}"
    kube_daemon.kubectl("create", "clusterrolebinding", who, "--clusterrole=cluster-admin", account)
    token = kube_daemon.kubectl("create", "token", name).strip()
    path = kube_daemon.home / name
    cluster = kube_daemon.cluster
    path.write_text(config_files.kubeconfig(cluster.place, cluster.network, token=token))
    return path
