"""The configuration files of the parts."""

import json
from typing import Any

from tests.kubernetes.cluster.binaries import CNI_FOLDER, find
from tests.kubernetes.cluster.images import PAUSE
from tests.kubernetes.cluster.layout import NODE, ClusterLayout, ClusterNetwork, NodeLayout

RUNTIME_SOCKET = "/run/containerd/containerd.sock"
SERVICES = "10.96.0.0/24"


def kubeconfig(place: ClusterLayout, network: ClusterNetwork, *, token: str) -> str:
    """JSON is valid YAML. The API server's certificate is self-signed."""
    cluster = {
        "server": network.server,
        "certificate-authority": str(place.of("apiserver") / "certificates" / "apiserver.crt"),
    }
    context = {"cluster": "rota", "user": "rota", "namespace": "default"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rota", "cluster": cluster}],
        "users": [{"name": "rota", "user": {"token": token}}],
        "contexts": [{"name": "rota", "context": context}],
        "current-context": "rota",
    }
    return json.dumps(content, indent=2)


def containerd(place: ClusterLayout, post: NodeLayout) -> str:
    folder = place.of(post.part("containerd"))
    return f"""
version = 4
root = "{folder}/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.server.v1.grpc"]
  address = "{RUNTIME_SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_FOLDER}"]
    conf_dir = "{folder}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{find("containerd-shim-runc-v2")}"
"""


def pod_network(network: ClusterNetwork, post: NodeLayout) -> str:
    """The pods of all nodes are on one bridge; each node has its own address range."""
    first, last = (network.address(number) for number in post.addresses)
    bridge = {
        "type": "bridge",
        "bridge": "rota0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pods, "rangeStart": first, "rangeEnd": last}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "rota", "plugins": [bridge, ports]})


def kubelet(post: NodeLayout) -> str:
    return configuration(
        "kubelet.config.k8s.io/v1beta1",
        "KubeletConfiguration",
        {
            "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
            "port": post.port,
            "healthzPort": post.port - 2,
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "10s",
            # Only this machine reaches the node, and the kubelet is not under test.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
        },
    )


def proxy(place: ClusterLayout, network: ClusterNetwork) -> str:
    return configuration(
        "kubeproxy.config.k8s.io/v1alpha1",
        "KubeProxyConfiguration",
        {
            "clientConnection": {"kubeconfig": str(place.of("proxy") / "kubeconfig")},
            "mode": "iptables",
            "hostnameOverride": NODE,
            "clusterCIDR": network.pods,
            # Without it, pods on one bridge would answer each other past the address translation.
            "iptables": {"masqueradeAll": True, "syncPeriod": "30s", "minSyncPeriod": "1s"},
            # The limits on connections belong to the machine and stay as they are.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        },
    )


def scheduler(place: ClusterLayout) -> str:
    """Without a request limit: benchmarks compare it with rota."""
    return configuration(
        "kubescheduler.config.k8s.io/v1",
        "KubeSchedulerConfiguration",
        {
            "clientConnection": {
                "kubeconfig": str(place.of("scheduler") / "kubeconfig"),
                "qps": 1000,
                "burst": 2000,
            },
            "leaderElection": {"leaderElect": False},
        },
    )


def configuration(version: str, kind: str, content: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": version, "kind": kind, **content}, indent=2)
