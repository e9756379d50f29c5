"""Nodes whose parts fail while a job is being placed on them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.cluster.api import Api, Object, until
from tests.kubernetes.cluster.binaries import find_or_build
from tests.kubernetes.cluster.components import command
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.kwok_nodes import NODES, is_ready
from tests.kubernetes.cluster.layout import CARDS_PER_NODE, FIRST, GPU_RESOURCE, NODE
from tests.kubernetes.cluster.nodes import has_cards
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.kubernetes.support.node_failures import mark_unreachable
from tests.kubernetes.support.worker_pods import nodes_of
from tests.support.daemon_process import wait_until
from tests.support.seed_counts import only_long

pytestmark = only_long

SLICE = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def kube_daemon(whole_cluster: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(whole_cluster, namespace) as made:
        yield made
        until(lambda: has_cards(whole_cluster.api, FIRST), "the node's cards")


def amounts(api: Api, resource: str) -> tuple[str, str]:
    """Capacity and allocatable amount of a resource of the node."""
    status = api.get(f"{NODES}/{NODE}")["status"]
    return status["capacity"].get(resource, "0"), status["allocatable"].get(resource, "0")


def waits_for_the_node(kube_daemon: KubernetesDaemonProcess) -> str:
    """A job for all GPUs is accepted although none is available."""
    wait_until(lambda: not kube_daemon.client.status().gpus, "the daemon to know")
    job = kube_daemon.submit("say came", gpus=str(CARDS_PER_NODE))
    wait_until(lambda: "an unhealthy node" in kube_daemon.why(job), "why it waits")
    return job


def test_job_waits_until_the_gpus_of_the_node_return(kube_daemon: KubernetesDaemonProcess) -> None:
    """First the device plugin stops; then the kubelet restarts without knowing the GPUs."""
    kube_daemon.up()
    api, control = kube_daemon.cluster.api, kube_daemon.cluster.control
    with control.stopped("cards"):
        until(lambda: amounts(api, GPU_RESOURCE) == ("4", "0"), "no card")
        first = waits_for_the_node(kube_daemon)
        with control.stopped("kubelet"):
            pass
        until(lambda: amounts(api, GPU_RESOURCE) == ("0", "0"), "no card")
        second = waits_for_the_node(kube_daemon)
    for job in (first, second):
        assert kube_daemon.ends(job).state == "succeeded"
        assert len(kube_daemon.starts(job)) == 1, kube_daemon.rota("story", job).stdout


def test_gpus_with_another_resource_name_are_used(kube_daemon: KubernetesDaemonProcess) -> None:
    """For example a slice of a GPU, from a separate device plugin."""
    api, control = kube_daemon.cluster.api, kube_daemon.cluster.control
    cards = kube_daemon.cluster.place.of("cards") / "uuids"
    plugin = command(find_or_build()["deviceplugin"], resource=SLICE, cards=cards)
    with control.stopped("cards"):
        control.start("slices", plugin)
        try:
            until(lambda: amounts(api, SLICE) == ("4", "4"), "the slices")
            kube_daemon.tell(ROTA_GPU_RESOURCE=SLICE)
            kube_daemon.up()
            job = kube_daemon.submit('say "$NVIDIA_VISIBLE_DEVICES"; await on', gpus="2")
            assert kube_daemon.says_like(job, "GPU-").words.count("GPU-") == 2
            [pod] = kube_daemon.live_pods(job)
            assert limits(pod) == {SLICE: "2"}
            kube_daemon.allow("on")
            assert kube_daemon.ends(job).state == "succeeded"
        finally:
            control.stop("slices")


def limits(pod: Object) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return container["resources"]["limits"]


def test_a_job_placed_on_an_unresponsive_node_is_queued_again(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """The daemon did not know it yet; the cluster's scheduler does."""
    kube_daemon.up()
    api, control = kube_daemon.cluster.api, kube_daemon.cluster.control
    with control.stopped("kubelet"):
        with control.stopped("scheduler"):
            job = kube_daemon.submit("say came", gpus="1")
            until(lambda: is_open(kube_daemon, job), "its pod to be let go")
            mark_unreachable(api, NODE)
        kube_daemon.reaches(job, "queued", attempt=1)
        lost = [each.reason for each in kube_daemon.client.story(job) if each.before == "starting"]
        assert "the cluster's scheduler could not place it" in lost[0]
        assert "taint" in lost[0]
        wait_until(lambda: "an unhealthy node" in kube_daemon.why(job), "why it waits")
        assert not kube_daemon.client.status().gpus_held
    until(lambda: is_ready(api.get(f"{NODES}/{NODE}")), "the node")
    ended = kube_daemon.ends(job)
    assert (ended.state, ended.attempt) == ("succeeded", 2), "without any retries"


def test_a_job_bound_to_an_unresponsive_node_waits(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """It may run there, so it is not started elsewhere."""
    kube_daemon.up()
    api = kube_daemon.cluster.api
    with kube_daemon.cluster.control.stopped("kubelet"):
        job = kube_daemon.submit("say came", gpus="1")
        until(lambda: nodes_of(kube_daemon, job) == [NODE], "its pod to be bound")
        mark_unreachable(api, NODE)
        words = f"waits for node {NODE}, which does not respond"
        wait_until(lambda: words in kube_daemon.why(job), "why it waits")
        assert (kube_daemon.state_of(job), kube_daemon.client.status().gpus_held) == ("starting", 1)
    assert kube_daemon.ends(job).state == "succeeded"
    assert [each.words for each in kube_daemon.heard(job)] == ["came"]
    # A kubelet that starts before its device plugin rejects pods that request a GPU.
    lost = [each.reason for each in kube_daemon.client.story(job) if each.before == "starting"][:-1]
    assert all("its node refused it" in each for each in lost), lost


def is_open(kube_daemon: KubernetesDaemonProcess, job: str) -> bool:
    return any(not pod["spec"].get("schedulingGates") for pod in kube_daemon.pods(job))


def test_an_eviction_by_taint_is_no_failure(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    kube_daemon.up()
    job = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(job, "came")
    try:
        kube_daemon.kubectl("taint", "node", NODE, "team=vision:NoExecute")
        wait_until(lambda: kube_daemon.state_of(job) == "queued", "its end there")
        assert "its node was tainted" in kube_daemon.rota("story", job).stdout
        assert not kube_daemon.client.status().gpus_held
        wait_until(lambda: "cordoned node" in kube_daemon.why(job), "why it waits")
    finally:
        kube_daemon.kubectl("taint", "node", NODE, "team-")
    kube_daemon.says(job, "came", attempt=2)
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert kube_daemon.client.show(job).failures == 0


@contextmanager
def other_cards(kube_daemon: KubernetesDaemonProcess) -> Iterator[Callable[[int], None]]:
    """Change the number of GPUs of the node; restored at the end."""
    file = kube_daemon.cluster.place.of("cards") / "uuids"
    before = file.read_text()
    more = [f"GPU-{number:08}-0000-0000-0000-000000000000" for number in range(1, 9)]
    uuids = list(dict.fromkeys([*before.split(), *more]))

    def put(n_cards: int) -> None:
        file.write_text("".join(f"{each}\n" for each in uuids[:n_cards]))
        expected = f"{n_cards}"
        api = kube_daemon.cluster.api
        until(lambda: amounts(api, GPU_RESOURCE)[1] == expected, f"{expected} cards")

    try:
        yield put
    finally:
        file.write_text(before)


def test_changes_of_the_gpus_of_a_node_are_followed(kube_daemon: KubernetesDaemonProcess) -> None:
    kube_daemon.up()
    with other_cards(kube_daemon) as put:
        put(6)
        wait_until(lambda: kube_daemon.client.status().gpus == 6, "all six to be known")
        large = kube_daemon.submit("say came; await large", gpus="5")
        kube_daemon.says(large, "came")
        put(2)
        wait_until(
            lambda: kube_daemon.client.status().gpus == 5, "none but those in use to be known"
        )
        late = kube_daemon.submit("say came", gpus="1")
        wait_until(lambda: kube_daemon.why(late), "why it waits")
        assert (kube_daemon.state_of(large), kube_daemon.client.status().gpus_held) == (
            "running",
            5,
        )
        kube_daemon.allow("large")
        for job in (large, late):
            assert kube_daemon.ends(job).state == "succeeded"
            assert len(kube_daemon.starts(job)) == 1, kube_daemon.rota("story", job).stdout
        wait_until(lambda: kube_daemon.client.status().gpus == 2, "only two to be left")
