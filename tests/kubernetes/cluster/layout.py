"""Where things of a test cluster are: its folder, its addresses, and the caches of this user."""

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
class Post:
    """A node with a kubelet: what its parts are called, and what it alone may use."""

    node: str
    suffix: str
    """Of its parts' names."""
    port: int
    """Of its kubelet."""
    addresses: tuple[int, int]
    """The last numbers of the first and the last address for its pods."""

    def part(self, name: str) -> str:
        return f"{name}{self.suffix}"


FIRST = Post("rota-node", "", 10250, (130, 219))
SECOND = Post("rota-node-2", "-2", 10260, (220, 254))
NODE = FIRST.node


def cache() -> Path:
    """What may be built again, by version."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "rota-cluster"


def clusters() -> Path:
    """The folders of all clusters of this user: short, because sockets are in there."""
    return Path(tempfile.gettempdir()) / f"rota-cluster-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class Place:
    """One cluster's folder. Each part has a folder in it, with its own log."""

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
        """There once the cluster can be used."""
        return self.folder / "ready"

    @property
    def network(self) -> Path:
        """Holds the number of the cluster's network."""
        return self.folder / "network"

    @property
    def containers(self) -> list[str]:
        """The ids of all that containerd knows of, on any node."""
        roots = [each / "root" for each in self.folder.glob("containerd*")]
        known = [path for root in roots for path in root.glob("io.containerd.grpc.v1.cri/*/*")]
        return [path.name for path in known if len(path.name) == CONTAINER_ID]

    def lock(self, purpose: str) -> Path:
        return clusters() / "locks" / f"{self.name}.{purpose}"


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses of the cluster with this number; no two of one machine share one."""

    number: int

    @property
    def link(self) -> str:
        return f"rota-{self.number}"

    def address(self, last: int) -> str:
        return f"10.213.{self.number}.{last}"

    @property
    def host(self) -> str:
        """How pods reach what listens on this machine outside the cluster."""
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
