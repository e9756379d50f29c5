"""Nodes whose parts come and go while a job is on its way to them."""

from collections.abc import Iterator

import pytest

from tests.counts import only_long
from tests.e2e.house import wait_until
from tests.kubernetes.cluster.api import Api, Object, until
from tests.kubernetes.cluster.compiling import find_or_build
from tests.kubernetes.cluster.fakes import NODES, is_ready
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.nodes import has_cards
from tests.kubernetes.cluster.parts import command
from tests.kubernetes.cluster.places import CARDS_PER_NODE, FIRST, NODE
from tests.kubernetes.outpost import Outpost, an_outpost
from tests.kubernetes.workers import nodes_of

pytestmark = only_long

LIMIT_S = 60.0
SLICE = "nvidia.com/mig-1g.5gb"
SILENT = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "gone"}


@pytest.fixture
def outpost(whole_cluster: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(whole_cluster, namespace) as made:
        yield made
        until(lambda: has_cards(whole_cluster.api, FIRST), "the node's cards", limit_s=LIMIT_S)


def amounts(api: Api, resource: str) -> tuple[str, str]:
    """What the node has of it, and what of that can be used."""
    status = api.get(f"{NODES}/{NODE}")["status"]
    return status["capacity"].get(resource, "0"), status["allocatable"].get(resource, "0")


def waits_for_the_node(outpost: Outpost) -> str:
    """A job of all cards is taken in, although there are none."""
    wait_until(lambda: not outpost.client.status().gpus, "the daemon to know")
    job = outpost.submit("say came", gpus=str(CARDS_PER_NODE))
    wait_until(lambda: "a node that is not well" in outpost.why(job), "why it waits")
    return job


def test_a_job_waits_for_cards_that_are_not_back_yet(outpost: Outpost) -> None:
    """Their device plugin is gone; then the kubelet begins anew, and has never heard of them."""
    outpost.up()
    api, control = outpost.cluster.api, outpost.cluster.control
    with control.stopped("cards"):
        until(lambda: amounts(api, "nvidia.com/gpu") == ("4", "0"), "no card", limit_s=LIMIT_S)
        first = waits_for_the_node(outpost)
        with control.stopped("kubelet"):
            pass
        until(lambda: amounts(api, "nvidia.com/gpu") == ("0", "0"), "no card", limit_s=LIMIT_S)
        second = waits_for_the_node(outpost)
    for job in (first, second):
        assert outpost.ends(job).state == "succeeded"
        assert len(outpost.starts(job)) == 1, outpost.rota("story", job).stdout


def test_gpus_by_another_name(outpost: Outpost) -> None:
    """A slice of a card, say, which a plugin of its own offers."""
    api, control = outpost.cluster.api, outpost.cluster.control
    cards = outpost.cluster.place.of("cards") / "uuids"
    plugin = command(find_or_build()["deviceplugin"], resource=SLICE, cards=cards)
    with control.stopped("cards"):
        control.start("slices", plugin)
        try:
            until(lambda: amounts(api, SLICE) == ("4", "4"), "the slices", limit_s=LIMIT_S)
            outpost.tell(ROTA_GPU_RESOURCE=SLICE)
            outpost.up()
            job = outpost.submit('say "$NVIDIA_VISIBLE_DEVICES"; await on', gpus="2")
            assert outpost.says_like(job, "GPU-").words.count("GPU-") == 2
            [pod] = outpost.live_pods(job)
            assert limits(pod) == {SLICE: "2"}
            outpost.allow("on")
            assert outpost.ends(job).state == "succeeded"
        finally:
            control.stop("slices")


def limits(pod: Object) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return container["resources"]["limits"]


def test_a_job_that_was_sent_to_a_node_that_fell_silent_is_queued_again(outpost: Outpost) -> None:
    """Nobody knew when it was sent; the cluster's scheduler knows when it looks at it."""
    outpost.up()
    api, control = outpost.cluster.api, outpost.cluster.control
    with control.stopped("kubelet"):
        with control.stopped("scheduler"):
            job = outpost.submit("say came", gpus="1")
            until(lambda: is_open(outpost, job), "its pod to be let go", limit_s=LIMIT_S)
            falls_silent(api)
        outpost.reaches(job, "queued", attempt=1)
        lost = [each.reason for each in outpost.client.story(job) if each.before == "starting"]
        assert "the cluster's scheduler could not place it" in lost[0]
        assert "taint" in lost[0]
        wait_until(lambda: "a node that is not well" in outpost.why(job), "why it waits")
        assert not outpost.client.status().gpus_held
    until(lambda: is_ready(api.get(f"{NODES}/{NODE}")), "the node", limit_s=LIMIT_S)
    ended = outpost.ends(job)
    assert (ended.state, ended.attempt) == ("succeeded", 2), "without any retries"


def test_a_job_that_is_on_a_node_that_fell_silent_waits_for_it(outpost: Outpost) -> None:
    """It may have begun there, for all we know: it is not begun elsewhere."""
    outpost.up()
    api = outpost.cluster.api
    with outpost.cluster.control.stopped("kubelet"):
        job = outpost.submit("say came", gpus="1")
        until(lambda: nodes_of(outpost, job) == [NODE], "its pod to be bound", limit_s=LIMIT_S)
        falls_silent(api)
        words = f"waits for node {NODE}, which does not answer"
        wait_until(lambda: words in outpost.why(job), "why it waits")
        assert (outpost.state_of(job), outpost.client.status().gpus_held) == ("starting", 1)
    assert outpost.ends(job).state == "succeeded"
    assert [each.words for each in outpost.heard(job)] == ["came"]
    # A kubelet that is back before its device plugin refuses whoever wants a card.
    lost = [each.reason for each in outpost.client.story(job) if each.before == "starting"][:-1]
    assert all("its node refused it" in each for each in lost), lost


def falls_silent(api: Api) -> None:
    """The kubelet is stopped; so the controllers would say it, after a while."""
    path = f"{NODES}/{NODE}"
    conditions = api.get(path)["status"]["conditions"]
    others = [each for each in conditions if each["type"] != "Ready"]
    api.patch(f"{path}/status", {"status": {"conditions": [*others, SILENT]}})
    until(lambda: api.get(path)["spec"].get("taints"), "the taint", limit_s=LIMIT_S)


def is_open(outpost: Outpost, job: str) -> bool:
    return any(not pod["spec"].get("schedulingGates") for pod in outpost.pods(job))
