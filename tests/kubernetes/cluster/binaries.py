"""The programs of a cluster: found where the user says, in the cache, on the machine, or built.

What is built is kept by version. The compiler's own cache, several gigabytes, is removed as soon
as everything is built.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.cluster.locks import locked
from tests.kubernetes.cluster.places import SOURCES, cache

KWOK_VERSION = "v0.8.0"
KWOK = "sigs.k8s.io/kwok"
KWOK_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
)
OF_THE_SYSTEM = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "ss": "iproute2",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "gcc": "gcc",
    "openssl": "openssl",
}
"""Commands, and the Debian packages that have them."""
CNI_FOLDER = Path("/usr/lib/cni")
BUILD_LIMIT_S = 40 * 60


class MissingError(Exception):
    """A cluster cannot be started here; the message names all that is missing."""


def find_or_build() -> dict[str, Path]:
    """Every program, by name. The first time, this takes minutes."""
    missing = missing_of_the_system()
    if missing:
        raise MissingError(f"no test cluster without {', '.join(missing)}")
    with locked(cache() / "lock"):
        for build in (build_kubernetes, build_device_plugin, build_kwok):
            build()
        shutil.rmtree(compiler_cache(), ignore_errors=True)
    return {name: path for name in all_names() if (path := find(name))}


def all_names() -> tuple[str, ...]:
    return (*OF_THE_SYSTEM, *KUBERNETES, "kwok", "stages.yaml", "deviceplugin")


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
    folders = [cache() / folder for folder in (kubernetes_key(), kwok_key(), plugin_key())]
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folders.insert(0, Path(assets))
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    found = shutil.which(name)
    return Path(found) if found and name in OF_THE_SYSTEM else None


def kubernetes_version() -> str:
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    assert found, "go.mod names no version of k8s.io/kubernetes"
    return found[1]


def kubernetes_key() -> str:
    return f"kubernetes-{kubernetes_version()}"


def kwok_key() -> str:
    return f"kwok-{KWOK_VERSION}"


def plugin_key() -> str:
    files = [SOURCES / "go.mod", *sorted((SOURCES / "deviceplugin").iterdir())]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
    return f"deviceplugin-{digest.hexdigest()[:12]}"


def build_kubernetes() -> None:
    wanted = [name for name in KUBERNETES if find(name) is None]
    if not wanted:
        return
    say(f"building {', '.join(wanted)} {kubernetes_version()} (once; up to ten minutes)")
    version = f"k8s.io/component-base/version.gitVersion={kubernetes_version()}"
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in wanted]
    compile_into(kubernetes_key(), packages, flags=f"-s -w -X {version}")


def build_device_plugin() -> None:
    if find("deviceplugin") is None:
        say("building the device plugin")
        compile_into(plugin_key(), ["./deviceplugin"], flags="-s -w")


def compile_into(key: str, packages: list[str], *, flags: str) -> None:
    made = fresh_folder(key)
    go("build", "-trimpath", "-ldflags", flags, "-o", f"{made}/", *packages)
    keep(made, key)


def build_kwok() -> None:
    if find("kwok") and find("stages.yaml"):
        return
    say(f"building kwok {KWOK_VERSION} (once; a few minutes)")
    made = fresh_folder(kwok_key())
    # As `go install` of a version, because its own module needs other versions than Kubernetes.
    go("install", "-trimpath", "-ldflags", "-s -w", f"{KWOK}/cmd/kwok@{KWOK_VERSION}", bin_=made)
    module = Path(go("env", "GOMODCACHE").strip()) / f"{KWOK}@{KWOK_VERSION}"
    stages = [stage for each in KWOK_STAGES for stage in stage_files(module, each)]
    (made / "stages.yaml").write_text("\n---\n".join(path.read_text() for path in stages))
    keep(made, kwok_key())


def stage_files(module: Path, name: str) -> list[Path]:
    found = sorted((module / "kustomize" / "stage" / name).glob("*.yaml"))
    return [path for path in found if not path.name.startswith("kustomization")]


def go(*arguments: str, bin_: Path | None = None) -> str:
    environment = os.environ | {"GOCACHE": str(compiler_cache()), "CGO_ENABLED": "0"}
    if bin_:
        environment["GOBIN"] = str(bin_)
    done = subprocess.run(
        ["go", *arguments],
        cwd=SOURCES,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise MissingError(f"go {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def compiler_cache() -> Path:
    return cache() / "go-build"


def fresh_folder(key: str) -> Path:
    folder = cache() / f"{key}.made"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def keep(made: Path, key: str) -> None:
    """One file after the other, so that a program in the cache is a whole one."""
    (cache() / key).mkdir(exist_ok=True)
    for path in made.iterdir():
        path.rename(cache() / key / path.name)
    made.rmdir()


def say(sentence: str) -> None:
    sys.stderr.write(f"rota: {sentence}\n")
