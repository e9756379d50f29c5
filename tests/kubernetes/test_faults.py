"""What breaks in a cluster while jobs run on it: nothing is lost, and nothing runs twice."""

import time
from collections.abc import Iterator

import pytest

from tests.counts import count, only_long
from tests.e2e.house import wait_until
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.fakes import NODES, is_ready
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.places import CARDS_PER_NODE, NODE
from tests.kubernetes.kills import ClusterDay
from tests.kubernetes.outpost import Outpost, an_outpost

PAUSE_S = 10.0
"""Longer than a daemon commands without a word from the API server. Not to wait for anything: so
long it lasts."""


@pytest.fixture
def outpost(whole_cluster: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(whole_cluster, namespace) as made:
        yield made


@only_long
def test_a_node_that_is_drained_is_left_and_found_again(outpost: Outpost) -> None:
    outpost.up()
    job = outpost.submit("say came; await on", gpus="1")
    outpost.says(job, "came")
    try:
        words = ["--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"]
        outpost.kubectl("drain", NODE, f"--pod-selector=rota.dev/job={job}", *words)
        assert outpost.live_pods() == []
        late = outpost.submit("say came", gpus="1")
        for each in (job, late):
            wait_until(lambda each=each: "cordoned node" in outpost.why(each), "why it waits")
    finally:
        outpost.kubectl("uncordon", NODE)
    outpost.says(late, "came")
    outpost.says(job, "came", attempt=2)
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"


@only_long
def test_a_job_waits_for_what_others_hold(outpost: Outpost) -> None:
    """Although it could not run now even if all of ours were gone."""
    outpost.up()
    holding = python_pod("theirs", "import time; time.sleep(999)", gpus=1)
    outpost.cluster.api.create(outpost.pods_path, holding)
    wait_until(lambda: outpost.client.status().gpus == CARDS_PER_NODE - 1, "their GPU to be gone")
    job = outpost.submit("say came", gpus=str(CARDS_PER_NODE))
    wait_until(lambda: "what others hold" in outpost.why(job), "why it waits")
    outpost.cluster.api.delete(f"{outpost.pods_path}/theirs", grace_s=1)
    outpost.says(job, "came")


@only_long
def test_a_silent_node_keeps_what_it_holds(outpost: Outpost) -> None:
    outpost.up()
    api, job = outpost.cluster.api, outpost.submit("say came; await on", gpus="1")
    outpost.reaches(job, "running")
    with outpost.cluster.control.stopped("kubelet"):
        until(lambda: not is_ready(api.get(f"{NODES}/{NODE}")), "NotReady")
        [node] = wait_until(lambda: [n for n in outpost.client.nodes() if n.note], "its silence")
        assert "does not answer" in node.note
        late = outpost.submit("say came", gpus="1")
        wait_until(lambda: "not well" in outpost.why(late), "why it waits")
        assert outpost.state_of(late) == "queued"
        assert outpost.state_of(job) == "running"
        assert outpost.client.status().gpus_held == 1
    until(lambda: is_ready(api.get(f"{NODES}/{NODE}")), "the node")
    outpost.says(late, "came")
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"
    assert len(outpost.starts(job)) == 1, outpost.rota("story", job).stdout


def test_jobs_live_through_cut_watches_and_an_api_server_that_begins_anew(outpost: Outpost) -> None:
    outpost.up()
    control = outpost.cluster.control
    running = outpost.submit("say came; await on", gpus="1")
    outpost.says(running, "came")
    control.cut_connections()
    first = outpost.submit("say came", gpus="1")
    assert outpost.ends(first).state == "succeeded"
    control.kill("apiserver")
    control.start("apiserver")
    second = submits(outpost, "second")
    outpost.allow("on")
    assert outpost.kept(lambda: outpost.ends(second)).state == "succeeded"
    assert outpost.kept(lambda: outpost.ends(running)).state == "succeeded"
    assert_once_each(outpost, running, first, second)


@only_long
def test_jobs_live_through_what_takes_longer_than_a_lease(outpost: Outpost) -> None:
    """A daemon that hears nothing for too long ends, and whoever keeps it starts it again."""
    outpost.up()
    control = outpost.cluster.control
    running = outpost.submit("say came; await on", gpus="1")
    outpost.says(running, "came")
    with control.stopped("apiserver"):
        time.sleep(PAUSE_S)
    second = submits(outpost, "second")
    assert outpost.kept(lambda: outpost.ends(second)).state == "succeeded"
    with control.paused("etcd"):
        time.sleep(PAUSE_S)
    late = submits(outpost, "late")
    outpost.allow("on")
    for job in (running, late):
        assert outpost.kept(lambda job=job: outpost.ends(job)).state == "succeeded"
    assert_once_each(outpost, running, second, late)


def submits(outpost: Outpost, key: str) -> str:
    """To whichever daemon commands when it is answered."""
    request = outpost.request("say came", gpus="1")
    return outpost.kept(lambda: outpost.client.submit(request, key=key))


def assert_once_each(outpost: Outpost, *jobs: str) -> None:
    assert sorted(line.job_id for line in outpost.heard()) == sorted(jobs)
    until(lambda: outpost.kept(outpost.has_room), "all GPUs to be free")


def test_a_daemon_that_is_killed_at_random_moments_loses_nothing(outpost: Outpost) -> None:
    day = ClusterDay(outpost, seed=7, rounds=count(50))
    day.run()
    assert day.complaints() == []
