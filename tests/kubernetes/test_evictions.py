"""A node that is short of something ends pods by itself, and says so in their statuses.

The node is one of KWOK's, and what a kubelet would write there is written by hand.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.house import wait_until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.outpost import Outpost, an_outpost

N_GPUS = 2
SHORT = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi."


@pytest.fixture
def outpost(whole_cluster: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(whole_cluster, namespace) as made:
        yield made


def evict(outpost: Outpost, job: str, *, reason: str) -> None:
    """As a kubelet tells it once nothing of the pod runs any more."""
    [pod] = outpost.live_pods(job)
    ended = {"exitCode": 137, "reason": reason, "finishedAt": "2026-11-16T08:00:00Z"}
    containers = [
        {**each, "ready": False, "started": False, "state": {"terminated": ended}}
        for each in pod["status"]["containerStatuses"]
    ]
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": SHORT,
        "containerStatuses": containers,
        "conditions": [*pod["status"]["conditions"], why],
    }
    path = f"{outpost.pods_path}/{pod['metadata']['name']}/status"
    outpost.cluster.api.patch(path, {"status": status})


@pytest.mark.parametrize(
    ("reason", "n_failures"),
    [("Error", 1), ("ContainerStatusUnknown", 0)],
    ids=["ended", "nobody knows how"],
)
def test_a_job_that_its_node_evicted_says_so_and_runs_again(
    outpost: Outpost, reason: str, n_failures: int
) -> None:
    """It may have used up itself what its node ran out of: if it ran, that counts as a failure,
    and it is tried again although it asks for no retries."""
    with outpost.cluster.kwok_nodes(1, gpus=N_GPUS) as [node]:
        outpost.up()
        place = {"kubernetes.io/hostname": node}
        job = outpost.submit("say came", gpus=str(N_GPUS), node_labels=place)
        outpost.reaches(job, "running", attempt=1)
        evict(outpost, job, reason=reason)
        outpost.reaches(job, "running", attempt=2)
        assert outpost.client.status().gpus_held == N_GPUS, "all of its node, which were free"
        assert outpost.client.show(job).failures == n_failures
        [left] = [each for each in outpost.client.story(job) if each.after == "queued"][1:]
        assert f"evicted by its node: {SHORT}" in left.reason
        outpost.client.cancel(job)
        wait_until(outpost.has_room, "its GPUs to be free")
