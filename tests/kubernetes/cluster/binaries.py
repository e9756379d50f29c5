"""The programs of a cluster: found where the user says, in the cache, or on the machine."""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

from tests.kubernetes.cluster.places import SOURCES, cache

CONTAINERD_VERSION = "v2.4.2"
KWOK_VERSION = "v0.8.0"
HELM_VERSION = "v3.22.0"
KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
)
CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
"""Not Debian's, which loses the last output of a container that ends while it is still read."""
OF_THE_SYSTEM = {
    "etcd": "etcd-server",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "ss": "iproute2",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "gcc": "gcc",
    "openssl": "openssl",
    "kubectl": "kubernetes-client",
    "faketime": "faketime",
}
"""Commands, and the Debian packages that have them."""
CNI_FOLDER = Path("/usr/lib/cni")


class MissingError(Exception):
    """A cluster cannot be started here; the message names all that is missing."""


def all_names() -> tuple[str, ...]:
    return (*OF_THE_SYSTEM, *KUBERNETES, *CONTAINERD, "kwok", "stages.yaml", "deviceplugin")


def missing_of_the_system() -> list[str]:
    """What cannot be built by us, in words that tell how to get it."""
    missing = [] if os.getuid() == 0 else ["root's rights"]
    missing += [
        f"{command} (Debian package {package})"
        for command, package in OF_THE_SYSTEM.items()
        if find(command) is None
    ]
    if not (CNI_FOLDER / "bridge").exists():
        missing.append(f"{CNI_FOLDER}/bridge (Debian package containernetworking-plugins)")
    unbuilt = [name for name in all_names() if name not in OF_THE_SYSTEM and find(name) is None]
    if unbuilt and shutil.which("go") is None:
        missing.append(f"{', '.join(unbuilt)}, or Go to build them")
    return missing


def find(name: str) -> Path | None:
    keys = (kubernetes_key(), containerd_key(), kwok_key(), plugin_key(), helm_key())
    folders = [cache() / key for key in keys]
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folders.insert(0, Path(assets))
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    found = shutil.which(name)
    return Path(found) if found and name in (*OF_THE_SYSTEM, "helm") else None


def kubernetes_version() -> str:
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    assert found, "go.mod names no version of k8s.io/kubernetes"
    return found[1]


def kubernetes_key() -> str:
    return f"kubernetes-{kubernetes_version()}"


def containerd_key() -> str:
    return f"containerd-{CONTAINERD_VERSION}"


def kwok_key() -> str:
    return f"kwok-{KWOK_VERSION}"


def helm_key() -> str:
    return f"helm-{HELM_VERSION}"


def plugin_key() -> str:
    files = [SOURCES / "go.mod", *sorted((SOURCES / "deviceplugin").iterdir())]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
    return f"deviceplugin-{digest.hexdigest()[:12]}"


def say(sentence: str) -> None:
    sys.stderr.write(f"rota: {sentence}\n")
