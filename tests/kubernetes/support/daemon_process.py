"""A daemon on this machine whose workers are pods of a cluster, and all that one can see of both.

It is a house as any other: jobs speak through the same folder, which their pods mount.
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

from rota.client.find import NoDaemonError
from rota.engines.kubernetes import names
from rota.errors import UnavailableError
from tests.e2e.house import ROTA, House, wait_until
from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.images import BARE, host_folders
from tests.kubernetes.cluster.places import GPU_RESOURCE
from tests.kubernetes.daemons import DEFINITION, free_port
from tests.kubernetes.witness import Witness
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


class Outpost(House, Witness):
    def __init__(self, home: Path, cluster: Cluster, namespace: str, **settings: str) -> None:
        super().__init__(home, settings={**SETTINGS, **settings})
        self.cluster, self.namespace = cluster, namespace
        self.listen = listen = f"{cluster.network.host}:{free_port()}"
        where = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
        self._command = [*ROTA, "up", "--engine", "kubernetes", *where, "--listen", listen]
        folders = [*dict.fromkeys([*host_folders(), str(ROOT)])]
        mounts = [*(f"{each}:{each}" for each in folders), f"{self.place}:{self.place}:rw"]
        self._write({"host_paths": [*folders, str(home)]}, mounts=mounts)

    def _write(self, settings: dict[str, Any], *, mounts: list[str]) -> None:
        """JSON's lists and texts are TOML's, too."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines += [f'checkpoints = "{self.home}/saved/{{job}}"', "[defaults]"]
        lines += [f"mounts = {json.dumps(mounts)}"]
        (self.state / SETTINGS_FILE).write_text("\n".join(lines) + "\n")

    def run_under(self, *runner: str) -> None:
        self._command = [*runner, *self._command]

    def use(self, kubeconfig: Path) -> None:
        """For the daemons that start from now on."""
        self._command += ["--kubeconfig", str(kubeconfig)]

    def lose_disk(self) -> None:
        """All that its daemons wrote down is gone; what they are told at the start is not."""
        for path in self.state.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != SETTINGS_FILE:
                path.unlink()

    def standby_says(self) -> str:
        """To whoever asks a daemon that does not command whether it takes work."""
        try:
            return httpx2.get(f"http://{self.listen}/readyz").text
        except httpx2.TransportError:
            return ""

    def kept(self, deed: Callable[[], T]) -> T:
        """What it gives. A daemon that lost its lease meanwhile is started again, as a cluster
        would do it."""

        def done() -> T | None:
            assert self.daemon is not None
            if self.daemon.poll() is not None:
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
        """Ours, or those of one job, whatever became of them."""
        found = self.cluster.api.items(f"{self.pods_path}?labelSelector={names.JOB}")
        return [each for each in found if job in ("", each["metadata"]["labels"][names.JOB])]

    def live_pods(self, job: str = "") -> list[Object]:
        return [each for each in self.pods(job) if each["status"]["phase"] not in OVER]

    def pod_runs(self, job: str) -> str:
        """The name of the job's one pod, once it runs."""

        def found() -> str:
            running = [each for each in self.pods(job) if each["status"]["phase"] == "Running"]
            return running[0]["metadata"]["name"] if running else ""

        return until(found, f"a pod of {job}")

    def status_of(self, job: str) -> Object:
        path = f"/apis/rota.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs/{job}"
        return self.cluster.api.get(path).get("status") or {}

    def overbooked(self) -> list[str]:
        """What the API server says of nodes that were given more than they have."""
        held: Counter[str] = Counter()
        for pod in self.cluster.api.items("/api/v1/pods"):
            node = pod["spec"].get("nodeName")
            if node and pod["status"]["phase"] not in OVER:
                held[node] += gpus_of(pod)
        nodes = self.cluster.api.items("/api/v1/nodes")
        has = {
            each["metadata"]["name"]: int(each["status"]["allocatable"].get(GPU_RESOURCE, 0))
            for each in nodes
        }
        return [f"{node}: {n} of {has.get(node)}" for node, n in held.items() if n > has[node]]

    def has_room(self) -> bool:
        """Nothing of ours holds a GPU, neither by the daemon's nor by the cluster's account."""
        held = sum(map(gpus_of, self.live_pods()))
        return not held and not self.client.status().gpus_held

    def why(self, job: str) -> str:
        return self.client.show(job).job.reason


def gpus_of(pod: Object) -> int:
    asked = [each.get("resources", {}).get("limits") or {} for each in pod["spec"]["containers"]]
    return sum(int(each.get(GPU_RESOURCE, 0)) for each in asked)


@contextmanager
def an_outpost(cluster: Cluster, namespace: str, **settings: str) -> Generator[Outpost]:
    """Its daemon is not up yet. At the end, its jobs are let go of."""
    home = Path(tempfile.mkdtemp(prefix="rota-"))
    outpost = Outpost(home, cluster, namespace, **settings)
    outpost.kubectl("apply", "-f", str(DEFINITION))
    outpost.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.rota.dev")
    until(lambda: outpost.ask_kubectl("get", "tj").returncode == 0, "the definition")
    try:
        yield outpost
    finally:
        outpost.raze()
        _let_go_of_all(outpost)


@contextmanager
def a_standby(leader: Outpost) -> Generator[Outpost]:
    """Another daemon for the same jobs, which waits, on a disk of its own with nothing on it."""
    home = Path(tempfile.mkdtemp(prefix="rota-"))
    standby = Outpost(home, leader.cluster, leader.namespace)
    standby.place = leader.place
    shutil.copy(leader.state / SETTINGS_FILE, standby.state)
    try:
        standby.launch()
        until(standby.standby_says, "a daemon that stands by")
        yield standby
    finally:
        standby.raze()


def _let_go_of_all(outpost: Outpost) -> None:
    api, path = outpost.cluster.api, f"/apis/rota.dev/v1alpha1/namespaces/{outpost.namespace}"
    for each in api.items(f"{path}/trainingjobs"):
        name = f"{path}/trainingjobs/{each['metadata']['name']}"
        with suppress(Exception):
            api.patch(name, {"metadata": {"finalizers": None}})
        api.delete(name)
