"""A node that is short of a resource evicts pods, and reports it in their statuses.

The node is simulated by KWOK; the test writes what a kubelet would write.
"""

from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.support.daemon_process import wait_until

N_GPUS = 2
SHORT = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi."


@pytest.fixture
def kube_daemon(whole_cluster: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(whole_cluster, namespace) as made:
        yield made


def evict(kube_daemon: KubernetesDaemonProcess, job: str, *, reason: str) -> None:
    """Write the status of an evicted pod, as a kubelet does."""
    [pod] = kube_daemon.live_pods(job)
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
    path = f"{kube_daemon.pods_path}/{pod['metadata']['name']}/status"
    kube_daemon.cluster.api.patch(path, {"status": status})


@pytest.mark.parametrize(
    ("reason", "n_failures"),
    [("Error", 1), ("ContainerStatusUnknown", 0)],
    ids=["ended", "unknown result"],
)
def test_an_evicted_job_has_the_reason_and_runs_again(
    kube_daemon: KubernetesDaemonProcess, reason: str, n_failures: int
) -> None:
    """The job may have used up the resource itself: if it ran, this counts as a failure, and it
    is retried even without retries of its own."""
    with kube_daemon.cluster.kwok_nodes(1, gpus=N_GPUS) as [node]:
        kube_daemon.up()
        place = {"kubernetes.io/hostname": node}
        job = kube_daemon.submit("say came", gpus=str(N_GPUS), node_labels=place)
        kube_daemon.reaches(job, "running", attempt=1)
        evict(kube_daemon, job, reason=reason)
        kube_daemon.reaches(job, "running", attempt=2)
        assert kube_daemon.client.status().gpus_held == N_GPUS, "all of its node, which were free"
        assert kube_daemon.client.show(job).failures == n_failures
        [left] = [each for each in kube_daemon.client.story(job) if each.after == "queued"][1:]
        assert f"evicted by its node: {SHORT}" in left.reason
        kube_daemon.client.cancel(job)
        wait_until(kube_daemon.has_room, "its GPUs to be free")
