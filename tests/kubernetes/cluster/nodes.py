"""Nodes with a kubelet: their files and images, and a second node.

The second node has its own mounts at the paths of the first, so both run with the same paths and
do not see each other. They share the network and the bridge of the pods.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tests.kubernetes.cluster import components, config_files, images
from tests.kubernetes.cluster.api import Api, RefusedError, until
from tests.kubernetes.cluster.binaries import find, find_or_build
from tests.kubernetes.cluster.control import Control
from tests.kubernetes.cluster.kwok_nodes import NODES, is_ready
from tests.kubernetes.cluster.layout import (
    CARDS_PER_NODE,
    GPU_RESOURCE,
    SECOND,
    ClusterLayout,
    ClusterNetwork,
    NodeLayout,
)
from tests.kubernetes.cluster.users import read_token

READY_LIMIT_S = 180.0
MOUNT_HOLDER = "node-2"
OWN_MOUNTS = """
mount -t tmpfs tmpfs /run
mount --bind "$1/lib" /var/lib
mount --bind "$1/var-log" /var/log
mount --make-rshared /
exec sleep infinity
"""


def node_files(
    place: ClusterLayout, network: ClusterNetwork, *, post: NodeLayout, token: str
) -> dict[str, str]:
    containerd, kubelet, cards = map(post.part, ("containerd", "kubelet", "cards"))
    return {
        f"{containerd}/config.toml": config_files.containerd(place, post),
        f"{containerd}/rota.conflist": config_files.pod_network(network, post),
        f"{kubelet}/config.json": config_files.kubelet(post),
        f"{kubelet}/kubeconfig": config_files.kubeconfig(place, network, token=token),
        f"{cards}/uuids": "".join(f"{uuid}\n" for uuid in card_uuids(post)),
    }


def write_all(place: ClusterLayout, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = place.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        path.chmod(0o600)


def card_uuids(post: NodeLayout) -> Iterable[str]:
    """Different for each node."""
    numbers = range(CARDS_PER_NODE)
    return (f"GPU-{number:08x}-0000-4000-8000-{post.port - 10250:012x}" for number in numbers)


def import_images(place: ClusterLayout, control: Control, *, inside: Sequence[str] = ()) -> None:
    ctr = [*inside, str(find("ctr"))]
    until(lambda: control.run(*ctr, "version"), "containerd", limit_s=READY_LIMIT_S)
    for name in images.NAMES:
        image = str(place.of("containerd") / f"{name}.tar")
        control.run(*ctr, "--namespace=k8s.io", "images", "import", image)


def has_cards(api: Api, post: NodeLayout) -> bool:
    node = api.get(f"{NODES}/{post.node}")
    n_cards = node["status"].get("allocatable", {}).get(GPU_RESOURCE)
    return is_ready(node) and n_cards == str(CARDS_PER_NODE)


@contextmanager
def second_node(api: Api, place: ClusterLayout, *, control: Control) -> Iterator[None]:
    names = [SECOND.part(each) for each in ("kubelet", "cards", "containerd")]
    try:
        start_second(api, place, control=control)
        yield
    finally:
        running = control.running()
        for name in names:
            if running.get(name):
                control.stop(name)
        api.delete(f"{NODES}/{SECOND.node}")
        until(lambda: _is_gone(api), f"the end of {SECOND.node}")


def _is_gone(api: Api) -> bool:
    try:
        api.get(f"{NODES}/{SECOND.node}")
    except RefusedError as error:
        return error.code == 404
    return False


def start_second(api: Api, place: ClusterLayout, *, control: Control) -> None:
    """Returns when the node is ready."""
    network = ClusterNetwork(int(place.network.read_text()))
    inside = _enter(place, control)
    tokens = (place.of("apiserver") / "tokens.csv").read_text()
    token = read_token(tokens, f"system:node:{SECOND.node}")
    write_all(place, node_files(place, network, post=SECOND, token=token))
    binaries = find_or_build()
    containerd = components.containerd(place, binaries["containerd"], SECOND)
    control.start(SECOND.part("containerd"), _within(inside, containerd))
    import_images(place, control, inside=inside)
    rest = components.node(place, network, binaries=binaries, post=SECOND)
    for name, part in rest.items():
        control.start(name, _within(inside, part))
    until(lambda: has_cards(api, SECOND), f"node {SECOND.node}", limit_s=READY_LIMIT_S)


def _enter(place: ClusterLayout, control: Control) -> list[str]:
    """The command prefix that enters the mounts of the second node."""
    folder = place.of(MOUNT_HOLDER)
    for name in ("lib", "var-log"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    words = ["unshare", "--mount", "--propagation", "slave", "/bin/sh", "-ec", OWN_MOUNTS]
    pid = control.start(MOUNT_HOLDER, {"command": [*words, "sh", str(folder)]})
    inside = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--"]
    until(lambda: _has_mounts(control, pid), "the second node's mounts")
    return inside


def _has_mounts(control: Control, pid: int) -> bool:
    return control.run("cat", f"/proc/{pid}/comm").strip() == "sleep"


def _within(inside: Sequence[str], part: components.Component) -> components.Component:
    return {**part, "command": [*inside, *part["command"]]}
