"""Find the programs of a cluster: in a given folder, in the cache, or on the machine; else build
them."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kubernetes.cluster.file_locks import locked
from tests.kubernetes.cluster.layout import SOURCES, cache

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
"""Debian's version loses the last output of a container that ends while it is read."""
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
"""Commands and the Debian packages that provide them."""
CNI_FOLDER = Path("/usr/lib/cni")


class MissingError(Exception):
    """The cluster cannot start; the message names everything that is missing."""


def all_names() -> tuple[str, ...]:
    return (*OF_THE_SYSTEM, *KUBERNETES, *CONTAINERD, "kwok", "stages.yaml", "deviceplugin")


def missing_of_the_system() -> list[str]:
    """Missing commands that cannot be built here, with instructions."""
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


CONTAINERD_COMMANDS = "github.com/containerd/containerd/v2/cmd"
KWOK = "sigs.k8s.io/kwok"
KWOK_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
HELM = "helm.sh/helm/v3/cmd/helm"
LIMIT_S = 40 * 60
ENDS_WITH_US = ("setpriv", "--pdeathsig", "TERM")
# Fewer garbage collections of the compiler: it is short-lived, and there is enough memory.
SETTINGS = {"CGO_ENABLED": "0", "GOGC": "400"}


def find_or_build() -> dict[str, Path]:
    """All programs of a cluster by name. The first call takes minutes."""
    missing = missing_of_the_system()
    if missing:
        raise MissingError(f"no test cluster without {', '.join(missing)}")
    if not all(map(find, all_names())):
        build(kubernetes, device_plugin, containerd, kwok)
    return {name: path for name in all_names() if (path := find(name))}


def find_or_build_helm() -> Path:
    if find("helm") is None:
        if shutil.which("go") is None:
            raise MissingError("no Helm, and no Go to build it")
        build(helm)
    found = find("helm")
    assert found
    return found


def build(*programs: Callable[[], None]) -> None:
    """Build missing programs. One process at a time: the others find everything built."""
    with locked(cache() / "lock"):
        for each in programs:
            each()
        shutil.rmtree(compiler_cache(), ignore_errors=True)


def kubernetes() -> None:
    """Built together, so that linking and compiling overlap. An interrupted build continues."""
    missing = [name for name in KUBERNETES if find(name) is None]
    if missing:
        say(f"building Kubernetes {kubernetes_version()} (once; about ten minutes)")
        version = f"k8s.io/component-base/version.gitVersion={kubernetes_version()}"
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in missing]
        compile_into(kubernetes_key(), *packages, flags=f"-s -w -X {version}")


def device_plugin() -> None:
    if find("deviceplugin") is None:
        say("building the device plugin")
        compile_into(plugin_key(), "./deviceplugin", flags="-s -w")


def containerd() -> None:
    if not all(map(find, CONTAINERD)):
        say(f"building containerd {CONTAINERD_VERSION} (once; a few minutes)")
        made = fresh_folder(containerd_key())
        packages = [f"{CONTAINERD_COMMANDS}/{name}@{CONTAINERD_VERSION}" for name in CONTAINERD]
        install(*packages, folder=made)
        keep(made, containerd_key())


def kwok() -> None:
    if find("kwok") and find("stages.yaml"):
        return
    say(f"building kwok {KWOK_VERSION} (once; a few minutes)")
    made = fresh_folder(kwok_key())
    install(f"{KWOK}/cmd/kwok@{KWOK_VERSION}", folder=made)
    module = Path(go("env", "GOMODCACHE").strip()) / f"{KWOK}@{KWOK_VERSION}"
    stages = [stage for each in KWOK_STAGES for stage in stage_files(module, each)]
    (made / "stages.yaml").write_text("\n---\n".join(path.read_text() for path in stages))
    keep(made, kwok_key())


def helm() -> None:
    if find("helm") is None:
        say(f"building helm {HELM_VERSION} (once; a few minutes)")
        made = fresh_folder(helm_key())
        install(f"{HELM}@{HELM_VERSION}", folder=made)
        keep(made, helm_key())


def stage_files(module: Path, name: str) -> list[Path]:
    found = sorted((module / "kustomize" / "stage" / name).glob("*.yaml"))
    return [path for path in found if not path.name.startswith("kustomization")]


def compile_into(key: str, *packages: str, flags: str) -> None:
    go("list", "-deps", *packages)  # Downloads the modules.
    made = fresh_folder(key)
    go("build", "-trimpath", "-ldflags", flags, "-o", f"{made}/", *packages, is_offline=True)
    keep(made, key)


def install(*packages: str, folder: Path) -> None:
    """From their own modules, which need other library versions than Kubernetes."""
    go("install", "-trimpath", "-ldflags", "-s -w", *packages, GOBIN=str(folder))


def go(*arguments: str, is_offline: bool = False, **settings: str) -> str:
    """Run a command of Go. A download may hang, so it has a limit. A build without downloads has
    none, because a busy machine may compile Kubernetes for an hour."""
    environment = os.environ | SETTINGS | {"GOCACHE": str(compiler_cache())} | settings
    if is_offline:
        environment["GOPROXY"] = "off"
    limit = () if is_offline else ("timeout", str(LIMIT_S))
    done = subprocess.run(
        [*ENDS_WITH_US, *limit, "go", *arguments],
        cwd=SOURCES,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = f"go {' '.join(arguments)} ended with {done.returncode}"
        raise MissingError(f"{words}:\n{done.stderr[-2000:]}")
    return done.stdout


def compiler_cache() -> Path:
    return cache() / "go-build"


def fresh_folder(key: str) -> Path:
    folder = cache() / f"{key}.made"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def keep(made: Path, key: str) -> None:
    """Move files one by one, so that the cache has complete programs only."""
    (cache() / key).mkdir(exist_ok=True)
    for path in made.iterdir():
        path.rename(cache() / key / path.name)
    made.rmdir()


def main() -> int:
    if os.environ.get("KUBECONFIG"):
        return 0
    try:
        find_or_build()
        find_or_build_helm()
    except MissingError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
