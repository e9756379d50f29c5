"""A cluster for the benchmark: a real control plane and simulated nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kubernetes.kwok_stages import with_pod_end_stage
from tests.kubernetes.cluster import components
from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.binaries import find_or_build
from tests.kubernetes.cluster.control import Control
from tests.kubernetes.cluster.kwok_nodes import NODES, fake_nodes
from tests.kubernetes.cluster.layout import NODE, PROJECT, ClusterLayout
from tests.kubernetes.cluster.lifecycle import join_or_start, leave

NAMESPACE = "scale"
DEFINITION = PROJECT / "deploy" / "kubernetes" / "base" / "crd.yaml"
IDLE = ("kubelet", "cards", "proxy", "containerd")
"""The parts of a node that runs something. Nothing runs here."""
NODE_GRACE = "200s"
"""One process signs for all nodes, and is late where everything shares a few cores: no node is lost
here, and none is to be taken for lost."""
MEASURED = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok")


@dataclass(frozen=True, slots=True)
class BenchmarkCluster:
    kubeconfig: Path
    api: Api
    place: ClusterLayout

    def cpu_s(self) -> Mapping[str, float]:
        """CPU seconds of each component of the control plane."""
        return {program: sum(map(cpu_s, pids)) for program, pids in self._pids().items()}

    def _pids(self) -> Mapping[str, list[int]]:
        """Process ids of this cluster's components, found by the folder in their flags."""
        found: dict[str, list[int]] = {name: [] for name in MEASURED}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                program, *flags = (folder / "cmdline").read_bytes().split(b"\0")
                name = Path(program.decode()).name
                if name in found and any(os.fsencode(self.place.folder) in each for each in flags):
                    found[name].append(int(folder.name))
        return found


@contextmanager
def benchmark_cluster(name: str, *, n_nodes: int, gpus: int) -> Iterator[BenchmarkCluster]:
    """Start a cluster with these nodes only and a namespace, and remove both at the end."""
    place = ClusterLayout(name)
    control = join_or_start(name)
    try:
        api = Api(place.kubeconfig)
        _without_kubelet(place, control, api=api)
        _define(place, api)
        with fake_nodes(api, n_nodes, gpus=gpus):
            yield BenchmarkCluster(place.kubeconfig, api, place)
    finally:
        leave(place, control)


def _without_kubelet(place: ClusterLayout, control: Control, *, api: Api) -> None:
    for each in IDLE:
        control.stop(each)
    api.delete(f"{NODES}/{NODE}")
    binaries = find_or_build()
    stages = place.of("kwok") / "stages.yaml"
    stages.write_text(with_pod_end_stage(binaries["stages.yaml"]))
    control.stop("kwok")
    control.start("kwok", components.kwok(place, {**binaries, "stages.yaml": stages}))
    manager = components.controller_manager(
        place, binaries["kube-controller-manager"], node_grace=NODE_GRACE
    )
    control.stop("controller-manager")
    control.start("controller-manager", manager)


def _define(place: ClusterLayout, api: Api) -> None:
    command = ["kubectl", "--kubeconfig", str(place.kubeconfig), "apply", "-f", str(DEFINITION)]
    subprocess.run(command, check=True, capture_output=True)
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    until(lambda: api.get(path), f"the account of {NAMESPACE}")
    jobs = f"/apis/rota.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs"
    until(lambda: api.get(jobs), "the definition of a TrainingJob")


def cpu_s(pid: int) -> float:
    # The process name may contain spaces and ends with the last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
