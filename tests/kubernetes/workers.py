"""Workers of elastic jobs as pods, and the ways in which they are lost."""

from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.outpost import Outpost

LABEL = "rota.dev/worker"


def pod_of(outpost: Outpost, job: str, worker: int) -> Object:
    """Of a worker that runs."""
    found = outpost.live_pods(job)
    return next(each for each in found if each["metadata"]["labels"][LABEL] == str(worker))


def name_of(outpost: Outpost, job: str, worker: int) -> str:
    return pod_of(outpost, job, worker)["metadata"]["name"]


def nodes_of(outpost: Outpost, job: str) -> list[str]:
    """Where its pods are, by the cluster's account."""
    return sorted(each["spec"].get("nodeName", "") for each in outpost.live_pods(job))


def delete(outpost: Outpost, job: str, worker: int) -> None:
    """By somebody's hand."""
    outpost.kubectl("delete", "pod", name_of(outpost, job, worker), "--wait=false")


def kill(outpost: Outpost, job: str, worker: int, *, pid: int) -> None:
    """-9, inside of its pod."""
    outpost.kubectl("exec", name_of(outpost, job, worker), "--", "/bin/kill", "-9", str(pid))


def settles(outpost: Outpost, job: str, n_pods: int) -> None:
    """Those who left are gone from the cluster, too."""
    until(lambda: len(outpost.live_pods(job)) == n_pods, f"{n_pods} pods of {job}")


def resize(outpost: Outpost, job: str, size: int) -> None:
    done = outpost.rota("resize", job, str(size))
    assert done.returncode == 0, done.stderr
