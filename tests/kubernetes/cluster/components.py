"""What a cluster consists of: each part's command, as the keeper starts it."""

from pathlib import Path
from typing import Any

from tests.kubernetes.cluster.places import (
    CARDS_PER_NODE,
    FIRST,
    GPU_RESOURCE,
    Network,
    Place,
    Post,
)
from tests.kubernetes.cluster.settings import SERVICES

GPU_PRODUCT = "NVIDIA-A100-SXM4-40GB"
GPU_MEMORY_MIB = 40960
NODE_GRACE = "30s"
"""How long a node may be silent before it counts as lost. The fake nodes speak every 10 s."""
ETCD = "http://127.0.0.1:2379"
FEW_SWEEPS = {"GOGC": "300", "GOMEMLIMIT": "2GiB"}
"""All parts are Go's, and share a few cores: each looks for unused memory when it has four times of
what it uses, instead of twice. That was an eighth of the API server's time."""

Part = dict[str, Any]


def control_plane(place: Place, network: Network, *, binaries: dict[str, Path]) -> dict[str, Part]:
    """What has to be there before the rest can speak to it."""
    return {
        "etcd": etcd(place, binaries["etcd"]),
        "containerd": containerd(place, binaries["containerd"], FIRST),
        "apiserver": apiserver(place, network, program=binaries["kube-apiserver"]),
    }


def others(place: Place, network: Network, *, binaries: dict[str, Path]) -> dict[str, Part]:
    return {
        **node(place, network, binaries=binaries, post=FIRST),
        "controller-manager": controller_manager(place, binaries["kube-controller-manager"]),
        "scheduler": scheduler(place, binaries["kube-scheduler"]),
        "proxy": proxy(place, binaries["kube-proxy"]),
        "kwok": kwok(place, binaries),
    }


def node(
    place: Place, network: Network, *, binaries: dict[str, Path], post: Post
) -> dict[str, Part]:
    """What a node has beside containerd."""
    return {
        post.part("kubelet"): kubelet(place, network, program=binaries["kubelet"], post=post),
        post.part("cards"): cards(place, binaries["deviceplugin"], post),
    }


def command(program: Path, **flags: str | int | Path) -> Part:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    return {"command": [str(program), *words], "environment": FEW_SWEEPS}


def etcd(place: Place, program: Path) -> Part:
    return command(
        program,
        data_dir=place.of("etcd") / "state",
        listen_client_urls=ETCD,
        advertise_client_urls=ETCD,
        listen_peer_urls="http://127.0.0.1:2380",
        quota_backend_bytes=2 * 1024**3,
    )


def apiserver(place: Place, network: Network, *, program: Path) -> Part:
    folder = place.of("apiserver")
    return command(
        program,
        etcd_servers=ETCD,
        bind_address="0.0.0.0",
        advertise_address=network.node,
        secure_port=6443,
        cert_dir=folder / "certificates",
        service_account_key_file=folder / "accounts.key",
        service_account_signing_key_file=folder / "accounts.key",
        service_account_issuer="https://kubernetes.default.svc",
        service_cluster_ip_range=SERVICES,
        token_auth_file=folder / "tokens.csv",
        authorization_mode="Node,RBAC",
        kubelet_preferred_address_types="InternalIP",
        allow_privileged="true",
        # Debian's etcd cannot tell how far it is, and a list by watch would wait for that in vain.
        feature_gates="WatchList=false",
    )


def containerd(place: Place, program: Path, post: Post) -> Part:
    return command(program, config=place.of(post.part("containerd")) / "config.toml")


def kubelet(place: Place, network: Network, *, program: Path, post: Post) -> Part:
    folder = place.of(post.part("kubelet"))
    labels = {
        f"{GPU_RESOURCE}.product": GPU_PRODUCT,
        f"{GPU_RESOURCE}.memory": GPU_MEMORY_MIB,
        f"{GPU_RESOURCE}.count": CARDS_PER_NODE,
    }
    return command(
        program,
        config=folder / "config.json",
        kubeconfig=folder / "kubeconfig",
        hostname_override=post.node,
        node_ip=network.node,
        node_labels=",".join(f"{key}={value}" for key, value in labels.items()),
    )


def cards(place: Place, program: Path, post: Post) -> Part:
    uuids = place.of(post.part("cards")) / "uuids"
    return command(program, resource=GPU_RESOURCE, cards=uuids)


def controller_manager(place: Place, program: Path, *, node_grace: str = NODE_GRACE) -> Part:
    return command(
        program,
        kubeconfig=place.of("controller-manager") / "kubeconfig",
        leader_elect="false",
        use_service_account_credentials="true",
        service_account_private_key_file=place.of("apiserver") / "accounts.key",
        root_ca_file=place.of("apiserver") / "certificates" / "apiserver.crt",
        node_monitor_grace_period=node_grace,
        node_monitor_period="2s",
        kube_api_qps=500,
        kube_api_burst=1000,
    )


def scheduler(place: Place, program: Path) -> Part:
    return command(program, config=place.of("scheduler") / "config.json")


def proxy(place: Place, program: Path) -> Part:
    return command(program, config=place.of("proxy") / "config.json")


def kwok(place: Place, binaries: dict[str, Path]) -> Part:
    return command(
        binaries["kwok"],
        kubeconfig=place.of("kwok") / "kubeconfig",
        config=binaries["stages.yaml"],
        manage_all_nodes="false",
        manage_nodes_with_annotation_selector="kwok.x-k8s.io/node=fake",
        node_lease_duration_seconds=40,
    )
