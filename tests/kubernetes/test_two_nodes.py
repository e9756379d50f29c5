"""Two real nodes: one is drained, cordoned or lost, and jobs continue on the other."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.layout import FIRST, SECOND
from tests.kubernetes.cluster.nodes import has_cards
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.kubernetes.support.node_failures import mark_unreachable
from tests.kubernetes.support.volume_claims import volume_claim
from tests.kubernetes.support.worker_pods import nodes_of
from tests.support.daemon_process import wait_until
from tests.support.live_job import LiveJob
from tests.support.seed_counts import only_long

DRAIN = ["--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"]
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OTHER = {FIRST.node: SECOND.node, SECOND.node: FIRST.node}


@pytest.fixture
def two_nodes(whole_cluster: Cluster) -> Iterator[Cluster]:
    with whole_cluster.second_node():
        yield whole_cluster


@pytest.fixture
def kube_daemon(two_nodes: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(two_nodes, namespace) as made:
        made.up()
        yield made


def holds(kube_daemon: KubernetesDaemonProcess, node: str, n_gpus: int, until_: str) -> str:
    """A job that uses so many GPUs of a node until it may end."""
    place = {"kubernetes.io/hostname": node}
    job = kube_daemon.submit(f"say came; await {until_}", gpus=str(n_gpus), node_labels=place)
    kube_daemon.says(job, "came")
    return job


def test_a_live_job_leaves_a_drained_node_without_a_stop(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    job = LiveJob(kube_daemon, gpus="2", gpus_per_worker=1)
    job.trains_with(2)
    [here, _] = nodes_of(kube_daemon, job.id)
    assert nodes_of(kube_daemon, job.id) == [here, here]
    done = kube_daemon.rota("nodes", "drain", here)
    assert done.returncode == 0, done.stderr
    job.trains_with(2, without=[0, 1])
    until(lambda: nodes_of(kube_daemon, job.id) == [OTHER[here]] * 2, "the old pods to end")
    assert kube_daemon.rota("nodes", "resume", here).returncode == 0
    late = holds(kube_daemon, here, 4, "late")
    assert nodes_of(kube_daemon, late) == [here]
    job.finishes()
    assert job.attempt() == 1


def test_job_whose_volume_a_node_refuses_runs_on_another_node(
    kube_daemon: KubernetesDaemonProcess, tmp_path: Path
) -> None:
    """The job does not return to the refusing node for a while."""
    here = holds(kube_daemon, FIRST.node, 1, "here")  # Who fits best there is sent there first.
    cluster, namespace = kube_daemon.cluster, kube_daemon.namespace
    with (
        volume_claim(cluster, namespace, "second", folder=tmp_path / "second", node=SECOND.node),
        volume_claim(cluster, namespace, "nowhere", folder=tmp_path / "nowhere", node="nowhere"),
    ):
        second = kube_daemon.submit("say came", gpus="1", mounts=["pvc:second:/mnt"])
        nowhere = kube_daemon.submit("say came", gpus="1", mounts=["pvc:nowhere:/mnt"])
        kube_daemon.says(second, "came", attempt=2)
        assert kube_daemon.ends(second).state == "succeeded"
        wait_until(lambda: f"{SECOND.node} rejected it" in kube_daemon.why(nowhere), "why")
        assert f"{FIRST.node}, {SECOND.node}" in kube_daemon.why(nowhere)
        assert "node affinity" in kube_daemon.why(nowhere)
        reason = kube_daemon.why(nowhere)
        until(lambda: kube_daemon.status_of(nowhere).get("reason") == reason, "it on the resource")
        assert (len(kube_daemon.starts(nowhere)), kube_daemon.client.status().gpus_held) == (2, 1)
        assert kube_daemon.client.show(nowhere).failures == 0
        kube_daemon.client.cancel(nowhere)
        assert kube_daemon.ends(nowhere).state == "cancelled"
    kube_daemon.allow("here")
    assert kube_daemon.ends(here).state == "succeeded"


@only_long
def test_a_cordoned_node_keeps_its_workers_only(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    running = holds(kube_daemon, SECOND.node, 1, "running")
    kube_daemon.kubectl("cordon", SECOND.node)
    wait_until(
        lambda: [n.id for n in kube_daemon.client.nodes() if n.is_cordoned] == [SECOND.node],
        "the cordon to be known",
    )
    assert "cordoned" in kube_daemon.rota("nodes", "list").stdout
    elsewhere = kube_daemon.submit("say came; await elsewhere", gpus="4")
    kube_daemon.says(elsewhere, "came")
    assert nodes_of(kube_daemon, elsewhere) == [FIRST.node]
    late = kube_daemon.submit("say came", gpus="1")
    wait_until(lambda: kube_daemon.why(late), "why it waits")
    assert kube_daemon.state_of(running) == "running"
    kube_daemon.kubectl("uncordon", SECOND.node)
    kube_daemon.says(late, "came")
    for name in ("running", "elsewhere"):
        kube_daemon.allow(name)
    for each in (running, elsewhere, late):
        assert kube_daemon.ends(each).state == "succeeded"
        assert len(kube_daemon.starts(each)) == 1, kube_daemon.rota("story", each).stdout


@only_long
def test_kubectl_drain_is_no_failure(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    first = holds(kube_daemon, FIRST.node, 3, "first")
    second = holds(kube_daemon, SECOND.node, 3, "second")
    job = LiveJob(kube_daemon, gpus="1..2")
    members = job.trains_with(2)
    assert nodes_of(kube_daemon, job.id) == sorted(OTHER)
    kube_daemon.allow("first")
    assert kube_daemon.ends(first).state == "succeeded"
    kube_daemon.kubectl("drain", SECOND.node, "--pod-selector=rota.dev/job", *DRAIN)
    remaining = job.trains_with(2, without=_there(kube_daemon, job, members))
    assert set(remaining) & set(members), "none of them continued"
    assert nodes_of(kube_daemon, job.id) == [FIRST.node] * 2
    kube_daemon.kubectl("uncordon", SECOND.node)
    kube_daemon.says(second, "came", attempt=2)
    kube_daemon.allow("second")
    job.finishes()
    assert job.attempt() == 1
    assert kube_daemon.ends(second).state == "succeeded"
    assert kube_daemon.client.show(second).job.attempt == 2
    assert any("evicted" in each.reason for each in kube_daemon.client.story(second))


def _there(kube_daemon: KubernetesDaemonProcess, job: LiveJob, members: list[int]) -> list[int]:
    """The members that were evicted."""
    shown = kube_daemon.client.show(job.id).attempts[-1].workers
    gone = [each.worker for each in shown if each.node == SECOND.node]
    return [each for each in members if each in gone]


def called_lost(kube_daemon: KubernetesDaemonProcess) -> None:
    done = kube_daemon.rota("nodes", "lost", SECOND.node)
    assert done.returncode == 0, done.stderr


def deleted(kube_daemon: KubernetesDaemonProcess) -> None:
    kube_daemon.kubectl("delete", "node", SECOND.node)


def out_of_service(kube_daemon: KubernetesDaemonProcess) -> None:
    kube_daemon.kubectl("taint", "node", SECOND.node, f"{OUT_OF_SERVICE}=shutdown:NoExecute")


@only_long
@pytest.mark.parametrize("given_up", [called_lost, deleted, out_of_service])
def test_workers_of_an_unresponsive_node_stay_until_it_is_declared_lost(
    kube_daemon: KubernetesDaemonProcess, given_up: Callable[[KubernetesDaemonProcess], None]
) -> None:
    """Also workers that were being stopped, because their end is unknown."""
    api = kube_daemon.cluster.api
    blocker = holds(kube_daemon, FIRST.node, 4, "blocker")
    job = kube_daemon.submit("say came; await job", gpus="1")
    unwanted = kube_daemon.submit("say came; await unwanted", gpus="1")
    for each in (job, unwanted):
        kube_daemon.reaches(each, "running")
        assert nodes_of(kube_daemon, each) == [SECOND.node]
    with kube_daemon.cluster.control.stopped(SECOND.part("kubelet")):
        mark_unreachable(api, SECOND.node)
        wait_until(lambda: [n for n in kube_daemon.client.nodes() if n.note], "its silence")
        kube_daemon.client.cancel(unwanted)
        kube_daemon.allow("blocker")
        assert kube_daemon.ends(blocker).state == "succeeded"
        here = holds(kube_daemon, FIRST.node, 1, "here")
        states = [kube_daemon.state_of(each) for each in (job, unwanted)]
        assert (states, kube_daemon.client.status().gpus_held) == (["running", "stopping"], 3)
        given_up(kube_daemon)
        kube_daemon.says(job, "came", attempt=2)
        assert kube_daemon.ends(unwanted).state == "cancelled"
        until(lambda: nodes_of(kube_daemon, job) == [FIRST.node], "its old pod to be gone")
        assert kube_daemon.client.status().gpus_held == 2
        assert len(kube_daemon.starts(here)) == 1
    kube_daemon.ask_kubectl("taint", "node", SECOND.node, f"{OUT_OF_SERVICE}-")
    until(lambda: has_cards(api, SECOND), "the node")
    for name in ("here", "job"):
        kube_daemon.allow(name)
    assert {kube_daemon.ends(each).state for each in (here, job)} == {"succeeded"}
    until(kube_daemon.has_room, "all GPUs to be free")
    last = holds(kube_daemon, SECOND.node, 4, "last")
    assert nodes_of(kube_daemon, last) == [SECOND.node]
    assert kube_daemon.overbooked() == []
