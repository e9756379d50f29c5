"""Two real nodes: one is drained, cordoned, emptied or lost, and jobs go on at the other."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.counts import only_long
from tests.e2e.house import wait_until
from tests.e2e.live import LiveJob
from tests.kubernetes.claims import a_claim
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.nodes import has_cards
from tests.kubernetes.cluster.places import FIRST, SECOND
from tests.kubernetes.outpost import Outpost, an_outpost
from tests.kubernetes.silence import falls_silent
from tests.kubernetes.workers import nodes_of

DRAIN = ["--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"]
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OTHER = {FIRST.node: SECOND.node, SECOND.node: FIRST.node}


@pytest.fixture
def two_nodes(whole_cluster: Cluster) -> Iterator[Cluster]:
    with whole_cluster.second_node():
        yield whole_cluster


@pytest.fixture
def outpost(two_nodes: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(two_nodes, namespace) as made:
        made.up()
        yield made


def holds(outpost: Outpost, node: str, n_gpus: int, until_: str) -> str:
    """A job that holds so many GPUs of a node until that is allowed."""
    place = {"kubernetes.io/hostname": node}
    job = outpost.submit(f"say came; await {until_}", gpus=str(n_gpus), node_labels=place)
    outpost.says(job, "came")
    return job


def test_a_live_job_moves_off_a_drained_node_without_a_stop(outpost: Outpost) -> None:
    job = LiveJob(outpost, gpus="2", gpus_per_worker=1)
    job.trains_with(2)
    [here, _] = nodes_of(outpost, job.id)
    assert nodes_of(outpost, job.id) == [here, here]
    done = outpost.rota("nodes", "drain", here)
    assert done.returncode == 0, done.stderr
    job.trains_with(2, without=[0, 1])
    until(lambda: nodes_of(outpost, job.id) == [OTHER[here]] * 2, "the old pods to end")
    assert outpost.rota("nodes", "resume", here).returncode == 0
    late = holds(outpost, here, 4, "late")
    assert nodes_of(outpost, late) == [here]
    job.finishes()
    assert job.attempt() == 1


def test_a_volume_that_its_node_cannot_have_sends_a_job_elsewhere(
    outpost: Outpost, tmp_path: Path
) -> None:
    """And to nobody again that refused it, while that lasts."""
    here = holds(outpost, FIRST.node, 1, "here")  # Who fits best there is sent there first.
    cluster, namespace = outpost.cluster, outpost.namespace
    with (
        a_claim(cluster, namespace, "second", folder=tmp_path / "second", node=SECOND.node),
        a_claim(cluster, namespace, "nowhere", folder=tmp_path / "nowhere", node="nowhere"),
    ):
        second = outpost.submit("say came", gpus="1", mounts=["pvc:second:/mnt"])
        nowhere = outpost.submit("say came", gpus="1", mounts=["pvc:nowhere:/mnt"])
        outpost.says(second, "came", attempt=2)
        assert outpost.ends(second).state == "succeeded"
        wait_until(lambda: f"{SECOND.node} would not have it" in outpost.why(nowhere), "why")
        assert f"{FIRST.node}, {SECOND.node}" in outpost.why(nowhere)
        assert "node affinity" in outpost.why(nowhere)
        reason = outpost.why(nowhere)
        until(lambda: outpost.status_of(nowhere).get("reason") == reason, "it on the resource")
        assert (len(outpost.starts(nowhere)), outpost.client.status().gpus_held) == (2, 1)
        assert outpost.client.show(nowhere).failures == 0
        outpost.client.cancel(nowhere)
        assert outpost.ends(nowhere).state == "cancelled"
    outpost.allow("here")
    assert outpost.ends(here).state == "succeeded"


@only_long
def test_what_runs_on_a_cordoned_node_goes_on_and_nothing_new_comes(outpost: Outpost) -> None:
    running = holds(outpost, SECOND.node, 1, "running")
    outpost.kubectl("cordon", SECOND.node)
    wait_until(
        lambda: [n.id for n in outpost.client.nodes() if n.is_cordoned] == [SECOND.node],
        "the cordon to be known",
    )
    assert "cordoned" in outpost.rota("nodes", "list").stdout
    elsewhere = outpost.submit("say came; await elsewhere", gpus="4")
    outpost.says(elsewhere, "came")
    assert nodes_of(outpost, elsewhere) == [FIRST.node]
    late = outpost.submit("say came", gpus="1")
    wait_until(lambda: outpost.why(late), "why it waits")
    assert outpost.state_of(running) == "running"
    outpost.kubectl("uncordon", SECOND.node)
    outpost.says(late, "came")
    for name in ("running", "elsewhere"):
        outpost.allow(name)
    for each in (running, elsewhere, late):
        assert outpost.ends(each).state == "succeeded"
        assert len(outpost.starts(each)) == 1, outpost.rota("story", each).stdout


@only_long
def test_a_node_is_emptied_by_kubectl_and_nobody_pays_for_it(outpost: Outpost) -> None:
    first = holds(outpost, FIRST.node, 3, "first")
    second = holds(outpost, SECOND.node, 3, "second")
    job = LiveJob(outpost, gpus="1..2")
    members = job.trains_with(2)
    assert nodes_of(outpost, job.id) == sorted(OTHER)
    outpost.allow("first")
    assert outpost.ends(first).state == "succeeded"
    outpost.kubectl("drain", SECOND.node, "--pod-selector=rota.dev/job", *DRAIN)
    remaining = job.trains_with(2, without=_there(outpost, job, members))
    assert set(remaining) & set(members), "nobody of them went on"
    assert nodes_of(outpost, job.id) == [FIRST.node] * 2
    outpost.kubectl("uncordon", SECOND.node)
    outpost.says(second, "came", attempt=2)
    outpost.allow("second")
    job.finishes()
    assert job.attempt() == 1
    assert outpost.ends(second).state == "succeeded"
    assert outpost.client.show(second).job.attempt == 2
    assert any("evicted" in each.reason for each in outpost.client.story(second))


def _there(outpost: Outpost, job: LiveJob, members: list[int]) -> list[int]:
    """The members that were evicted."""
    shown = outpost.client.show(job.id).attempts[-1].workers
    gone = [each.worker for each in shown if each.node == SECOND.node]
    return [each for each in members if each in gone]


def called_lost(outpost: Outpost) -> None:
    done = outpost.rota("nodes", "lost", SECOND.node)
    assert done.returncode == 0, done.stderr


def deleted(outpost: Outpost) -> None:
    outpost.kubectl("delete", "node", SECOND.node)


def out_of_service(outpost: Outpost) -> None:
    outpost.kubectl("taint", "node", SECOND.node, f"{OUT_OF_SERVICE}=shutdown:NoExecute")


@only_long
@pytest.mark.parametrize("given_up", [called_lost, deleted, out_of_service])
def test_what_a_silent_node_held_stays_booked_until_it_is_given_up(
    outpost: Outpost, given_up: Callable[[Outpost], None]
) -> None:
    """Also what was to end there: nobody knows whether it has."""
    api = outpost.cluster.api
    blocker = holds(outpost, FIRST.node, 4, "blocker")
    job = outpost.submit("say came; await job", gpus="1")
    unwanted = outpost.submit("say came; await unwanted", gpus="1")
    for each in (job, unwanted):
        outpost.reaches(each, "running")
        assert nodes_of(outpost, each) == [SECOND.node]
    with outpost.cluster.control.stopped(SECOND.part("kubelet")):
        falls_silent(api, SECOND.node)
        wait_until(lambda: [n for n in outpost.client.nodes() if n.note], "its silence")
        outpost.client.cancel(unwanted)
        outpost.allow("blocker")
        assert outpost.ends(blocker).state == "succeeded"
        here = holds(outpost, FIRST.node, 1, "here")
        states = [outpost.state_of(each) for each in (job, unwanted)]
        assert (states, outpost.client.status().gpus_held) == (["running", "stopping"], 3)
        given_up(outpost)
        outpost.says(job, "came", attempt=2)
        assert outpost.ends(unwanted).state == "cancelled"
        until(lambda: nodes_of(outpost, job) == [FIRST.node], "its old pod to be gone")
        assert outpost.client.status().gpus_held == 2
        assert len(outpost.starts(here)) == 1
    outpost.ask_kubectl("taint", "node", SECOND.node, f"{OUT_OF_SERVICE}-")
    until(lambda: has_cards(api, SECOND), "the node")
    for name in ("here", "job"):
        outpost.allow(name)
    assert {outpost.ends(each).state for each in (here, job)} == {"succeeded"}
    until(outpost.has_room, "all GPUs to be free")
    last = holds(outpost, SECOND.node, 4, "last")
    assert nodes_of(outpost, last) == [SECOND.node]
    assert outpost.overbooked() == []
