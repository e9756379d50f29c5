"""A cluster for the benchmark: a real control plane, and nodes that only look like nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale.stages import with_ends
from tests.kubernetes.cluster import parts
from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.compiling import find_or_build
from tests.kubernetes.cluster.control import Control
from tests.kubernetes.cluster.fakes import NODES, fake_nodes
from tests.kubernetes.cluster.lifecycle import join_or_start, leave
from tests.kubernetes.cluster.places import NODE, PROJECT, Place

NAMESPACE = "scale"
DEFINITION = PROJECT / "deploy" / "kubernetes" / "base" / "crd.yaml"
IDLE = ("kubelet", "cards", "proxy", "containerd")
"""The parts of a node that runs something. Nothing runs here."""
NODE_GRACE = "200s"
"""One process signs for all nodes, and is late where everything shares a few cores: no node is lost
here, and none is to be taken for lost."""
MEASURED = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok")


@dataclass(frozen=True, slots=True)
class Ground:
    kubeconfig: Path
    api: Api
    place: Place

    def cpu_s(self) -> Mapping[str, float]:
        """What each part of the control plane has used."""
        return {program: sum(map(cpu_s, pids)) for program, pids in self._pids().items()}

    def _pids(self) -> Mapping[str, list[int]]:
        """The parts of this cluster, as this machine sees them: their flags name its folder."""
        found: dict[str, list[int]] = {name: [] for name in MEASURED}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                program, *flags = (folder / "cmdline").read_bytes().split(b"\0")
                name = Path(program.decode()).name
                if name in found and any(os.fsencode(self.place.folder) in each for each in flags):
                    found[name].append(int(folder.name))
        return found


@contextmanager
def ground(name: str, *, n_nodes: int, gpus: int) -> Iterator[Ground]:
    """A cluster with these nodes and no others, and a namespace in it; gone at the end."""
    place = Place(name)
    control = join_or_start(name)
    try:
        api = Api(place.kubeconfig)
        _without_kubelet(place, control, api=api)
        _define(place, api)
        with fake_nodes(api, n_nodes, gpus=gpus):
            yield Ground(place.kubeconfig, api, place)
    finally:
        leave(place, control)


def _without_kubelet(place: Place, control: Control, *, api: Api) -> None:
    for each in IDLE:
        control.stop(each)
    api.delete(f"{NODES}/{NODE}")
    binaries = find_or_build()
    stages = place.of("kwok") / "stages.yaml"
    stages.write_text(with_ends(binaries["stages.yaml"]))
    control.stop("kwok")
    control.start("kwok", parts.kwok(place, {**binaries, "stages.yaml": stages}))
    manager = parts.controller_manager(
        place, binaries["kube-controller-manager"], node_grace=NODE_GRACE
    )
    control.stop("controller-manager")
    control.start("controller-manager", manager)


def _define(place: Place, api: Api) -> None:
    command = ["kubectl", "--kubeconfig", str(place.kubeconfig), "apply", "-f", str(DEFINITION)]
    subprocess.run(command, check=True, capture_output=True)
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    until(lambda: api.get(path), f"the account of {NAMESPACE}")
    jobs = f"/apis/rota.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs"
    until(lambda: api.get(jobs), "the definition of a TrainingJob")


def cpu_s(pid: int) -> float:
    # The name, which may hold spaces, ends with the last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
