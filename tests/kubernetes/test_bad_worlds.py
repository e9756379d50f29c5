"""Clocks, credentials and definitions that are not as they should be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.counts import only_long
from tests.e2e.house import wait_until
from tests.kubernetes.cluster import settings
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.daemons import DEFINITION
from tests.kubernetes.outpost import LEASE_LOST, Outpost, an_outpost

OUTDATED = "definition of TrainingJob is of another version"


@pytest.fixture
def outpost(whole_cluster: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(whole_cluster, namespace) as made:
        yield made
        rights = [f"{namespace}-{name}" for name in ("first", "second")]
        made.kubectl("delete", "clusterrolebinding", "--ignore-not-found", *rights)


@only_long
@pytest.mark.parametrize("skew", ["+1h", "-30m"])
def test_a_clock_that_is_wrong(outpost: Outpost, skew: str) -> None:
    outpost.tell(DONT_FAKE_MONOTONIC="1")
    outpost.run_under("faketime", "-f", skew)
    outpost.up()
    job = outpost.submit("say came; await on", gpus="1")
    outpost.says(job, "came")
    outpost.kill()
    outpost.up()
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"
    assert len(outpost.starts(job)) == 1


def test_a_definition_of_an_older_version(outpost: Outpost) -> None:
    """A daemon that runs says so to whoever asks; one that starts waits, and does not command."""
    older: dict[str, Any] = yaml.safe_load(DEFINITION.read_text())
    [version] = older["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["record"]
    outpost.up()
    outpost.kubectl("apply", "-f", "-", given=older)
    try:
        job = outpost.submit("say came", gpus="1")
        wait_until(lambda: OUTDATED in outpost.client.status().trouble, "the reason")
        assert outpost.readiness() == 503
        assert OUTDATED in " ".join(outpost.rota("status").stdout.split())
        outpost.kill()
        outpost.give_up_lease()
        outpost.launch()
        wait_until(lambda: OUTDATED in outpost.standby_says(), "the reason")
        assert outpost.ask_kubectl("get", "lease", "rota").returncode != 0
        assert outpost.live_pods() == []
    finally:
        outpost.kubectl("apply", "-f", str(DEFINITION))
    outpost.ready()
    assert outpost.ends(job).state == "succeeded"
    assert [line.words for line in outpost.heard(job)] == ["came"]


@only_long
def test_credentials_that_have_ended(outpost: Outpost) -> None:
    """The daemon gives up its command, and waits with the reason; with new ones, it goes on."""
    outpost.use(credentials(outpost, "first"))
    outpost.up()
    job = outpost.submit("say came; await on", gpus="1")
    outpost.says(job, "came")
    outpost.kubectl("delete", "serviceaccount", "first")
    assert not outpost.has_ended()
    assert LEASE_LOST in outpost.log()
    told = len(outpost.log())
    outpost.launch()
    wait_until(lambda: "Unauthorized" in outpost.standby_says(), "the reason")
    outpost.kill()
    lines = [each for each in outpost.log()[told:].splitlines() if "Unauthorized" in each]
    said = [(each["event"], each.get("what")) for each in map(json.loads, lines)]
    assert len(said) == len(set(said)), "once of each thing that is waited for"
    outpost.use(credentials(outpost, "second"))
    outpost.up()
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"
    assert len(outpost.starts(job)) == 1


def credentials(outpost: Outpost, name: str) -> Path:
    """A kubeconfig of an account that may do everything, as long as it exists."""
    outpost.kubectl("create", "serviceaccount", name)
    account = f"--serviceaccount={outpost.namespace}:{name}"
    who = f"{outpost.namespace}-{name}"
    outpost.kubectl("create", "clusterrolebinding", who, "--clusterrole=cluster-admin", account)
    token = outpost.kubectl("create", "token", name).strip()
    path = outpost.home / name
    cluster = outpost.cluster
    path.write_text(settings.kubeconfig(cluster.place, cluster.network, token=token))
    return path
