"""Failures of the cluster while jobs run: nothing is lost, and nothing runs twice."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.kwok_nodes import NODES, is_ready
from tests.kubernetes.cluster.layout import CARDS_PER_NODE, NODE
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.kubernetes.support.kill_scenario import ClusterKillScenario
from tests.support.daemon_process import wait_until
from tests.support.seed_counts import count, only_long

PAUSE_S = 10.0
"""Longer than a daemon leads without contact to the API server. A sleep of this time is the length
of the outage."""


@pytest.fixture
def kube_daemon(whole_cluster: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(whole_cluster, namespace) as made:
        yield made


@only_long
def test_a_drained_node_is_emptied_and_used_again(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    kube_daemon.up()
    job = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(job, "came")
    try:
        words = ["--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"]
        kube_daemon.kubectl("drain", NODE, f"--pod-selector=rota.dev/job={job}", *words)
        assert kube_daemon.live_pods() == []
        late = kube_daemon.submit("say came", gpus="1")
        for each in (job, late):
            wait_until(lambda each=each: "cordoned node" in kube_daemon.why(each), "why it waits")
    finally:
        kube_daemon.kubectl("uncordon", NODE)
    kube_daemon.says(late, "came")
    kube_daemon.says(job, "came", attempt=2)
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"


@only_long
def test_job_waits_for_resources_of_other_schedulers(kube_daemon: KubernetesDaemonProcess) -> None:
    """Although it could not run now even without our other jobs."""
    kube_daemon.up()
    holding = python_pod("theirs", "import time; time.sleep(999)", gpus=1)
    kube_daemon.cluster.api.create(kube_daemon.pods_path, holding)
    wait_until(
        lambda: kube_daemon.client.status().gpus == CARDS_PER_NODE - 1, "their GPU to be gone"
    )
    job = kube_daemon.submit("say came", gpus=str(CARDS_PER_NODE))
    wait_until(
        lambda: "resources that other workloads hold" in kube_daemon.why(job), "why it waits"
    )
    kube_daemon.cluster.api.delete(f"{kube_daemon.pods_path}/theirs", grace_s=1)
    kube_daemon.says(job, "came")


@only_long
def test_an_unresponsive_node_keeps_its_workers(kube_daemon: KubernetesDaemonProcess) -> None:
    kube_daemon.up()
    api, job = kube_daemon.cluster.api, kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.reaches(job, "running")
    with kube_daemon.cluster.control.stopped("kubelet"):
        until(lambda: not is_ready(api.get(f"{NODES}/{NODE}")), "NotReady")
        [node] = wait_until(
            lambda: [n for n in kube_daemon.client.nodes() if n.note], "its silence"
        )
        assert "does not respond" in node.note
        late = kube_daemon.submit("say came", gpus="1")
        wait_until(lambda: "unhealthy" in kube_daemon.why(late), "why it waits")
        assert kube_daemon.state_of(late) == "queued"
        assert kube_daemon.state_of(job) == "running"
        assert kube_daemon.client.status().gpus_held == 1
    until(lambda: is_ready(api.get(f"{NODES}/{NODE}")), "the node")
    kube_daemon.says(late, "came")
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert len(kube_daemon.starts(job)) == 1, kube_daemon.rota("story", job).stdout


def test_jobs_survive_broken_watches_and_an_api_server_restart(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    kube_daemon.up()
    control = kube_daemon.cluster.control
    running = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(running, "came")
    control.cut_connections()
    first = kube_daemon.submit("say came", gpus="1")
    assert kube_daemon.ends(first).state == "succeeded"
    control.kill("apiserver")
    control.start("apiserver")
    second = submits(kube_daemon, "second")
    kube_daemon.allow("on")
    assert kube_daemon.kept(lambda: kube_daemon.ends(second)).state == "succeeded"
    assert kube_daemon.kept(lambda: kube_daemon.ends(running)).state == "succeeded"
    assert_once_each(kube_daemon, running, first, second)


@only_long
def test_jobs_survive_outages_longer_than_a_lease(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """A daemon that loses its lease exits and is restarted."""
    kube_daemon.up()
    control = kube_daemon.cluster.control
    running = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(running, "came")
    with control.stopped("apiserver"):
        time.sleep(PAUSE_S)
    second = submits(kube_daemon, "second")
    assert kube_daemon.kept(lambda: kube_daemon.ends(second)).state == "succeeded"
    with control.paused("etcd"):
        time.sleep(PAUSE_S)
    late = submits(kube_daemon, "late")
    kube_daemon.allow("on")
    for job in (running, late):
        assert kube_daemon.kept(lambda job=job: kube_daemon.ends(job)).state == "succeeded"
    assert_once_each(kube_daemon, running, second, late)


def submits(kube_daemon: KubernetesDaemonProcess, key: str) -> str:
    """Submit a job to the daemon that leads at that time."""
    request = kube_daemon.request("say came", gpus="1")
    return kube_daemon.kept(lambda: kube_daemon.client.submit(request, key=key))


def assert_once_each(kube_daemon: KubernetesDaemonProcess, *jobs: str) -> None:
    assert sorted(line.job_id for line in kube_daemon.heard()) == sorted(jobs)
    until(lambda: kube_daemon.kept(kube_daemon.has_room), "all GPUs to be free")


def test_a_daemon_killed_at_random_moments_loses_nothing(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    scenario = ClusterKillScenario(kube_daemon, seed=7, rounds=count(50))
    scenario.run()
    assert scenario.complaints() == []
