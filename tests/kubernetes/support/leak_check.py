"""What a cluster leaves on this machine, seen from outside its namespaces."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.cluster.layout import ClusterLayout, ClusterNetwork
from tests.kubernetes.cluster.namespace_supervisor import cgroups

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ClusterTraces:
    """How to recognise the parts of a cluster after it has ended."""

    place: ClusterLayout
    network: ClusterNetwork
    space: str
    containers: list[str]


def traces(place: ClusterLayout) -> ClusterTraces:
    network = ClusterNetwork(int(place.network.read_text()))
    return ClusterTraces(place, network, space_of(init_process_of(place)), place.containers)


def leftovers(of: ClusterTraces) -> dict[str, list[str]]:
    """By kind."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    ours = (str(of.place.folder), "/var/lib/kubelet")
    found = {
        "processes": [path.name for path in processes() if space_of(path) == of.space],
        "mounts": [line for line in mounts if any(word in line for word in ours)],
        "links": lines_with(["ip", "-oneline", "link"], (f" {of.network.link}@", " rota0")),
        "routes": lines_with(["ip", "route"], (of.network.pods, of.network.node)),
        "rules": lines_with(["iptables-save"], ("KUBE-", "CNI-", of.network.pods)),
        "groups": [str(path) for path in cgroups(of.containers)],
        "files": [str(path) for path in of.place.folder.rglob("*") if is_no_log(path)],
    }
    return {kind: each for kind, each in found.items() if each}


def lines_with(command: list[str], words: tuple[str, ...]) -> list[str]:
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in printed.splitlines() if any(word in line for word in words)]


def is_no_log(path: Path) -> bool:
    return path.name != "log" and not path.is_dir()


def processes() -> list[Path]:
    return list(PROC.glob("[0-9]*"))


def space_of(process: Path) -> str:
    """The pid namespace of a process."""
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:
        return ""


def command_of(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def init_process_of(place: ClusterLayout) -> Path:
    """The first process in the namespaces."""
    outside = space_of(PROC / "self")
    ours = [path for path in processes() if command_of(path)[-1:] == [str(place.folder)]]
    return next(path for path in ours if space_of(path) != outside)


def supervisor_of(place: ClusterLayout) -> int:
    words = ["tests.kubernetes.cluster.namespace_supervisor", place.name]
    return next(int(path.name) for path in processes() if command_of(path)[-2:] == words)
