"""The parts of a cluster, with the command of each."""

from pathlib import Path
from typing import Any

from tests.kubernetes.cluster.config_files import SERVICES
from tests.kubernetes.cluster.layout import (
    CARDS_PER_NODE,
    FIRST,
    GPU_RESOURCE,
    ClusterLayout,
    ClusterNetwork,
    NodeLayout,
)

GPU_PRODUCT = "NVIDIA-A100-SXM4-40GB"
GPU_MEMORY_MIB = 40960
NODE_GRACE = "30s"
"""How long a node may be silent before it counts as lost. KWOK nodes report every 10 s."""
ETCD = "http://127.0.0.1:2379"
GO_GC_SETTINGS = {"GOGC": "300", "GOMEMLIMIT": "2GiB"}
"""All parts are Go programs and share few cores: collect garbage at four times the live memory
instead of twice. That was an eighth of the API server's CPU time."""

Component = dict[str, Any]


def control_plane(
    place: ClusterLayout, network: ClusterNetwork, *, binaries: dict[str, Path]
) -> dict[str, Component]:
    """The parts that must run before all others."""
    return {
        "etcd": etcd(place, binaries["etcd"]),
        "containerd": containerd(place, binaries["containerd"], FIRST),
        "apiserver": apiserver(place, network, program=binaries["kube-apiserver"]),
    }


def others(
    place: ClusterLayout, network: ClusterNetwork, *, binaries: dict[str, Path]
) -> dict[str, Component]:
    return {
        **node(place, network, binaries=binaries, post=FIRST),
        "controller-manager": controller_manager(place, binaries["kube-controller-manager"]),
        "scheduler": scheduler(place, binaries["kube-scheduler"]),
        "proxy": proxy(place, binaries["kube-proxy"]),
        "kwok": kwok(place, binaries),
    }


def node(
    place: ClusterLayout, network: ClusterNetwork, *, binaries: dict[str, Path], post: NodeLayout
) -> dict[str, Component]:
    """The parts of a node besides containerd."""
    return {
        post.part("kubelet"): kubelet(place, network, program=binaries["kubelet"], post=post),
        post.part("cards"): cards(place, binaries["deviceplugin"], post),
    }


def command(program: Path, **flags: str | int | Path) -> Component:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    return {"command": [str(program), *words], "environment": GO_GC_SETTINGS}


def etcd(place: ClusterLayout, program: Path) -> Component:
    return command(
        program,
        data_dir=place.of("etcd") / "state",
        listen_client_urls=ETCD,
        advertise_client_urls=ETCD,
        listen_peer_urls="http://127.0.0.1:2380",
        quota_backend_bytes=2 * 1024**3,
    )


def apiserver(place: ClusterLayout, network: ClusterNetwork, *, program: Path) -> Component:
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
        # Debian's etcd does not report its progress, and a list by watch would wait for it forever.
        feature_gates="WatchList=false",
    )


def containerd(place: ClusterLayout, program: Path, post: NodeLayout) -> Component:
    return command(program, config=place.of(post.part("containerd")) / "config.toml")


def kubelet(
    place: ClusterLayout, network: ClusterNetwork, *, program: Path, post: NodeLayout
) -> Component:
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


def cards(place: ClusterLayout, program: Path, post: NodeLayout) -> Component:
    uuids = place.of(post.part("cards")) / "uuids"
    return command(program, resource=GPU_RESOURCE, cards=uuids)


def controller_manager(
    place: ClusterLayout, program: Path, *, node_grace: str = NODE_GRACE
) -> Component:
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


def scheduler(place: ClusterLayout, program: Path) -> Component:
    return command(program, config=place.of("scheduler") / "config.json")


def proxy(place: ClusterLayout, program: Path) -> Component:
    return command(program, config=place.of("proxy") / "config.json")


def kwok(place: ClusterLayout, binaries: dict[str, Path]) -> Component:
    return command(
        binaries["kwok"],
        kubeconfig=place.of("kwok") / "kubeconfig",
        config=binaries["stages.yaml"],
        manage_all_nodes="false",
        manage_nodes_with_annotation_selector="kwok.x-k8s.io/node=fake",
        node_lease_duration_seconds=40,
    )
