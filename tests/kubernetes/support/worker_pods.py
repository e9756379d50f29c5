"""Workers of elastic jobs as pods, and ways to lose them."""

from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess

LABEL = "rota.dev/worker"


def pod_of(kube_daemon: KubernetesDaemonProcess, job: str, worker: int) -> Object:
    """The pod of a running worker."""
    found = kube_daemon.live_pods(job)
    return next(each for each in found if each["metadata"]["labels"][LABEL] == str(worker))


def name_of(kube_daemon: KubernetesDaemonProcess, job: str, worker: int) -> str:
    return pod_of(kube_daemon, job, worker)["metadata"]["name"]


def nodes_of(kube_daemon: KubernetesDaemonProcess, job: str) -> list[str]:
    """The nodes of its pods, as the cluster reports them."""
    return sorted(each["spec"].get("nodeName", "") for each in kube_daemon.live_pods(job))


def delete(kube_daemon: KubernetesDaemonProcess, job: str, worker: int) -> None:
    """Delete the pod of a worker, as a user would."""
    kube_daemon.kubectl("delete", "pod", name_of(kube_daemon, job, worker), "--wait=false")


def kill(kube_daemon: KubernetesDaemonProcess, job: str, worker: int, *, pid: int) -> None:
    """Kill the worker inside its pod with SIGKILL."""
    kube_daemon.kubectl(
        "exec", name_of(kube_daemon, job, worker), "--", "/bin/kill", "-9", str(pid)
    )


def wait_for_pods(kube_daemon: KubernetesDaemonProcess, job: str, n_pods: int) -> None:
    """Wait until pods of workers that left are gone from the cluster."""
    until(lambda: len(kube_daemon.live_pods(job)) == n_pods, f"{n_pods} pods of {job}")


def resize(kube_daemon: KubernetesDaemonProcess, job: str, size: int) -> None:
    done = kube_daemon.rota("resize", job, str(size))
    assert done.returncode == 0, done.stderr
