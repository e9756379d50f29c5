"""A daemon on this machine whose workers are pods of a cluster.

Tests see it like any other daemon process: jobs write to the same folder, which their pods
mount.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from rota.client.endpoint import Endpoint, NoDaemonError
from rota.engines.kubernetes.pods import naming
from rota.errors import UnavailableError
from rota.kube.quantities import parse_quantity
from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.images import BARE, host_folders
from tests.kubernetes.cluster.layout import GPU_RESOURCE
from tests.kubernetes.support.daemons import DEFINITION
from tests.kubernetes.support.kubectl import Kubectl
from tests.support.daemon_process import ROTA, DaemonProcess, wait_until
from tests.support.ports import reserve_port
from tests.tidy.tree import ROOT

SETTINGS = {
    "ROTA_MIN_RUNTIME": "0s",
    "ROTA_RESTART_COST": "0s",
    "ROTA_POD_IMAGE": BARE,
    "ROTA_STUCK_AFTER": "2s",
    "ROTA_BIND_PATIENCE": "5s",
}
SETTINGS_FILE = "config.toml"
OVER = ("Succeeded", "Failed")
LEASE_LOST = "lease rota is no longer ours"

T = TypeVar("T")


class KubernetesDaemonProcess(DaemonProcess, Kubectl):
    def __init__(self, home: Path, cluster: Cluster, namespace: str, **settings: str) -> None:
        super().__init__(home, settings={**SETTINGS, **settings})
        self.cluster, self.namespace = cluster, namespace
        self.listen = listen = f"{cluster.network.host}:{reserve_port()}"
        where = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
        self._command = [*ROTA, "up", "--engine", "kubernetes", *where, "--listen", listen]
        self._command += ["--plain-http"]
        folders = [*dict.fromkeys([*host_folders(), str(ROOT)])]
        mounts = [*(f"{each}:{each}" for each in folders), f"{self.place}:{self.place}:rw"]
        self._write({"host_paths": [*folders, str(home)]}, mounts=mounts)

    def _write(self, settings: dict[str, Any], *, mounts: list[str]) -> None:
        """Lists and strings of JSON are valid TOML."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines += [f'checkpoints = "{self.home}/saved/{{job}}"', "[defaults]"]
        lines += [f"mounts = {json.dumps(mounts)}"]
        (self.state / SETTINGS_FILE).write_text("\n".join(lines) + "\n")

    @property
    def endpoint(self) -> Endpoint:
        """Its address on TCP, without TLS as in the deployment."""
        return Endpoint(url=f"http://{self.listen}", allows_plain_http=True)

    def run_under(self, *runner: str) -> None:
        self._command = [*runner, *self._command]

    def use(self, kubeconfig: Path) -> None:
        """Settings for daemons that start from now on."""
        self._command += ["--kubeconfig", str(kubeconfig)]

    def lose_disk(self) -> None:
        """Delete everything that its daemons wrote; the settings remain."""
        for path in self.state.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != SETTINGS_FILE:
                path.unlink()

    def standby_says(self) -> str:
        """The answer of a standby daemon to a readiness check."""
        try:
            return httpx2.get(f"http://{self.listen}/readyz").text
        except httpx2.TransportError:
            return ""

    def kept(self, deed: Callable[[], T]) -> T:
        """The result of the call. A daemon that lost its lease is restarted, as a cluster would
        do."""

        def done() -> T | None:
            assert self.process is not None
            if self.process.poll() is not None:
                assert LEASE_LOST in self.log(), self.log()[-2000:]
                self.launch()
            try:
                return deed() if self.answers() else None
            except (NoDaemonError, UnavailableError):
                return None

        return wait_until(done, "a daemon that does it")

    # -- the cluster's own view -----------------------------------------------------------------

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def pods(self, job: str = "") -> list[Object]:
        """Our pods, or those of one job, in any state."""
        found = self.cluster.api.items(f"{self.pods_path}?labelSelector={naming.JOB}")
        return [each for each in found if job in ("", each["metadata"]["labels"][naming.JOB])]

    def live_pods(self, job: str = "") -> list[Object]:
        return [each for each in self.pods(job) if each["status"]["phase"] not in OVER]

    def pod_runs(self, job: str) -> str:
        """The name of the job's only pod, once it runs."""

        def found() -> str:
            running = [each for each in self.pods(job) if each["status"]["phase"] == "Running"]
            return running[0]["metadata"]["name"] if running else ""

        return until(found, f"a pod of {job}")

    def status_of(self, job: str) -> Object:
        path = f"/apis/rota.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs/{job}"
        return self.cluster.api.get(path).get("status") or {}

    def overbooked(self) -> list[str]:
        """Nodes on which the API server counts more requests than resources."""
        held: Counter[str] = Counter()
        for pod in self.cluster.api.items("/api/v1/pods"):
            node = pod["spec"].get("nodeName")
            if node and pod["status"]["phase"] not in OVER:
                held[node] += gpus_of(pod)
        nodes = self.cluster.api.items("/api/v1/nodes")
        has = {
            each["metadata"]["name"]: parse_quantity(
                each["status"]["allocatable"].get(GPU_RESOURCE)
            )
            for each in nodes
        }
        return [f"{node}: {n} of {has.get(node)}" for node, n in held.items() if n > has[node]]

    def has_room(self) -> bool:
        """No GPU is in use, neither for the daemon nor for the cluster."""
        held = sum(map(gpus_of, self.live_pods()))
        return not held and not self.client.status().gpus_held

    def why(self, job: str) -> str:
        return self.client.show(job).job.reason


def gpus_of(pod: Object) -> int:
    asked = [each.get("resources", {}).get("limits") or {} for each in pod["spec"]["containers"]]
    return sum(int(each.get(GPU_RESOURCE, 0)) for each in asked)


@contextmanager
def kubernetes_daemon(
    cluster: Cluster, namespace: str, **settings: str
) -> Generator[KubernetesDaemonProcess]:
    """Not started yet. At the end its jobs are removed."""
    home = Path(tempfile.mkdtemp(prefix="rota-"))
    kube_daemon = KubernetesDaemonProcess(home, cluster, namespace, **settings)
    kube_daemon.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
    kube_daemon.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.rota.dev")
    until(lambda: kube_daemon.ask_kubectl("get", "tj").returncode == 0, "the definition")
    try:
        yield kube_daemon
    finally:
        kube_daemon.destroy()
        _remove_training_jobs(kube_daemon)


@contextmanager
def standby_daemon(leader: KubernetesDaemonProcess) -> Generator[KubernetesDaemonProcess]:
    """A second daemon for the same jobs, on standby, with its own empty disk."""
    home = Path(tempfile.mkdtemp(prefix="rota-"))
    standby = KubernetesDaemonProcess(home, leader.cluster, leader.namespace)
    standby.place = leader.place
    shutil.copy(leader.state / SETTINGS_FILE, standby.state)
    try:
        standby.launch()
        until(standby.standby_says, "a daemon that stands by")
        yield standby
    finally:
        standby.destroy()


def _remove_training_jobs(kube_daemon: KubernetesDaemonProcess) -> None:
    api, path = (
        kube_daemon.cluster.api,
        f"/apis/rota.dev/v1alpha1/namespaces/{kube_daemon.namespace}",
    )
    for each in api.items(f"{path}/trainingjobs"):
        name = f"{path}/trainingjobs/{each['metadata']['name']}"
        with suppress(Exception):
            api.patch(name, {"metadata": {"finalizers": None}})
        api.delete(name)
