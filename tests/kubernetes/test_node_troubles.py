"""Nodes whose parts come and go while a job is on its way to them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.counts import only_long
from tests.e2e.house import wait_until
from tests.kubernetes.cluster.api import Api, Object, until
from tests.kubernetes.cluster.compiling import find_or_build
from tests.kubernetes.cluster.fakes import NODES, is_ready
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.nodes import has_cards
from tests.kubernetes.cluster.parts import command
from tests.kubernetes.cluster.places import CARDS_PER_NODE, FIRST, GPU_RESOURCE, NODE
from tests.kubernetes.outpost import Outpost, an_outpost
from tests.kubernetes.silence import falls_silent
from tests.kubernetes.workers import nodes_of

pytestmark = only_long

SLICE = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def outpost(whole_cluster: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(whole_cluster, namespace) as made:
        yield made
        until(lambda: has_cards(whole_cluster.api, FIRST), "the node's cards")


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
        until(lambda: amounts(api, GPU_RESOURCE) == ("4", "0"), "no card")
        first = waits_for_the_node(outpost)
        with control.stopped("kubelet"):
            pass
        until(lambda: amounts(api, GPU_RESOURCE) == ("0", "0"), "no card")
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
            until(lambda: amounts(api, SLICE) == ("4", "4"), "the slices")
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
            until(lambda: is_open(outpost, job), "its pod to be let go")
            falls_silent(api, NODE)
        outpost.reaches(job, "queued", attempt=1)
        lost = [each.reason for each in outpost.client.story(job) if each.before == "starting"]
        assert "the cluster's scheduler could not place it" in lost[0]
        assert "taint" in lost[0]
        wait_until(lambda: "a node that is not well" in outpost.why(job), "why it waits")
        assert not outpost.client.status().gpus_held
    until(lambda: is_ready(api.get(f"{NODES}/{NODE}")), "the node")
    ended = outpost.ends(job)
    assert (ended.state, ended.attempt) == ("succeeded", 2), "without any retries"


def test_a_job_that_is_on_a_node_that_fell_silent_waits_for_it(outpost: Outpost) -> None:
    """It may have begun there, for all we know: it is not begun elsewhere."""
    outpost.up()
    api = outpost.cluster.api
    with outpost.cluster.control.stopped("kubelet"):
        job = outpost.submit("say came", gpus="1")
        until(lambda: nodes_of(outpost, job) == [NODE], "its pod to be bound")
        falls_silent(api, NODE)
        words = f"waits for node {NODE}, which does not answer"
        wait_until(lambda: words in outpost.why(job), "why it waits")
        assert (outpost.state_of(job), outpost.client.status().gpus_held) == ("starting", 1)
    assert outpost.ends(job).state == "succeeded"
    assert [each.words for each in outpost.heard(job)] == ["came"]
    # A kubelet that is back before its device plugin refuses whoever wants a card.
    lost = [each.reason for each in outpost.client.story(job) if each.before == "starting"][:-1]
    assert all("its node refused it" in each for each in lost), lost


def is_open(outpost: Outpost, job: str) -> bool:
    return any(not pod["spec"].get("schedulingGates") for pod in outpost.pods(job))


def test_a_taint_that_takes_pods_off_costs_their_job_nothing(outpost: Outpost) -> None:
    outpost.up()
    job = outpost.submit("say came; await on", gpus="1")
    outpost.says(job, "came")
    try:
        outpost.kubectl("taint", "node", NODE, "team=vision:NoExecute")
        wait_until(lambda: outpost.state_of(job) == "queued", "its end there")
        assert "its node was tainted" in outpost.rota("story", job).stdout
        assert not outpost.client.status().gpus_held
        wait_until(lambda: "cordoned node" in outpost.why(job), "why it waits")
    finally:
        outpost.kubectl("taint", "node", NODE, "team-")
    outpost.says(job, "came", attempt=2)
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"
    assert outpost.client.show(job).failures == 0


@contextmanager
def other_cards(outpost: Outpost) -> Iterator[Callable[[int], None]]:
    """So many are in the node from now on; at the end, as many as before."""
    file = outpost.cluster.place.of("cards") / "uuids"
    before = file.read_text()
    more = [f"GPU-{number:08}-0000-0000-0000-000000000000" for number in range(1, 9)]
    uuids = list(dict.fromkeys([*before.split(), *more]))

    def put(n_cards: int) -> None:
        file.write_text("".join(f"{each}\n" for each in uuids[:n_cards]))
        expected = f"{n_cards}"
        api = outpost.cluster.api
        until(lambda: amounts(api, GPU_RESOURCE)[1] == expected, f"{expected} cards")

    try:
        yield put
    finally:
        file.write_text(before)


def test_a_node_that_grows_and_shrinks(outpost: Outpost) -> None:
    outpost.up()
    with other_cards(outpost) as put:
        put(6)
        wait_until(lambda: outpost.client.status().gpus == 6, "all six to be known")
        large = outpost.submit("say came; await large", gpus="5")
        outpost.says(large, "came")
        put(2)
        wait_until(lambda: outpost.client.status().gpus == 5, "none but those in use to be known")
        late = outpost.submit("say came", gpus="1")
        wait_until(lambda: outpost.why(late), "why it waits")
        assert (outpost.state_of(large), outpost.client.status().gpus_held) == ("running", 5)
        outpost.allow("large")
        for job in (large, late):
            assert outpost.ends(job).state == "succeeded"
            assert len(outpost.starts(job)) == 1, outpost.rota("story", job).stdout
        wait_until(lambda: outpost.client.status().gpus == 2, "only two to be left")
