"""Folders, addresses and caches of a test cluster."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[3]
SOURCES = Path(__file__).parent / "build"
CARDS_PER_NODE = 4
GPU_RESOURCE = "nvidia.com/gpu"
CONTAINER_ID = 64


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """A node with a kubelet: the names of its parts, and what only it uses."""

    node: str
    suffix: str
    """Suffix of the names of its parts."""
    port: int
    """Port of its kubelet."""
    addresses: tuple[int, int]
    """The last numbers of the first and the last address of its pods."""

    def part(self, name: str) -> str:
        return f"{name}{self.suffix}"


FIRST = NodeLayout("rota-node", "", 10250, (130, 219))
SECOND = NodeLayout("rota-node-2", "-2", 10260, (220, 254))
NODE = FIRST.node


def cache() -> Path:
    """Files that can be built again, by version."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "rota-cluster"


def clusters() -> Path:
    """The folders of all clusters of this user. The path is short, because it contains sockets."""
    return Path(tempfile.gettempdir()) / f"rota-cluster-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The folder of one cluster, with a subfolder and a log for each part."""

    name: str

    @property
    def folder(self) -> Path:
        return clusters() / self.name

    def of(self, part: str) -> Path:
        return self.folder / part

    def log(self, part: str) -> Path:
        return self.folder / part / "log"

    @property
    def socket(self) -> Path:
        return self.folder / "keeper.sock"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def ready(self) -> Path:
        """Exists when the cluster can be used."""
        return self.folder / "ready"

    @property
    def network(self) -> Path:
        """Contains the number of the cluster's network."""
        return self.folder / "network"

    @property
    def containers(self) -> list[str]:
        """The ids of all containers of containerd, on all nodes."""
        roots = [each / "root" for each in self.folder.glob("containerd*")]
        known = [path for root in roots for path in root.glob("io.containerd.grpc.v1.cri/*/*")]
        return [path.name for path in known if len(path.name) == CONTAINER_ID]

    def lock(self, purpose: str) -> Path:
        return clusters() / "locks" / f"{self.name}.{purpose}"


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """The addresses of the cluster with this number, which is unique on the machine."""

    number: int

    @property
    def link(self) -> str:
        return f"rota-{self.number}"

    def address(self, last: int) -> str:
        return f"10.213.{self.number}.{last}"

    @property
    def host(self) -> str:
        """The address of this machine for pods."""
        return self.address(1)

    @property
    def node(self) -> str:
        return self.address(2)

    @property
    def link_bits(self) -> int:
        return 30

    @property
    def pods(self) -> str:
        return f"{self.address(128)}/25"

    @property
    def server(self) -> str:
        return f"https://{self.node}:6443"
