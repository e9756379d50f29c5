"""Builds the programs that Debian does not have, once, and keeps them by version.

The compiler's own cache, several gigabytes, is removed as soon as everything is built.
`python -m tests.kubernetes.cluster.compiling` does all of it ahead of the tests.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kubernetes.cluster.binaries import (
    CONTAINERD,
    CONTAINERD_VERSION,
    HELM_VERSION,
    KUBERNETES,
    KWOK_VERSION,
    MissingError,
    all_names,
    containerd_key,
    find,
    helm_key,
    kubernetes_key,
    kubernetes_version,
    kwok_key,
    missing_of_the_system,
    plugin_key,
    say,
)
from tests.kubernetes.cluster.locks import locked
from tests.kubernetes.cluster.places import SOURCES, cache

CONTAINERD_COMMANDS = "github.com/containerd/containerd/v2/cmd"
KWOK = "sigs.k8s.io/kwok"
KWOK_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
HELM = "helm.sh/helm/v3/cmd/helm"
LIMIT_S = 40 * 60
ENDS_WITH_US = ("setpriv", "--pdeathsig", "TERM")
# The compiler looks for garbage less often than it would: it is short-lived, and memory is there.
SETTINGS = {"CGO_ENABLED": "0", "GOGC": "400"}


def find_or_build() -> dict[str, Path]:
    """Every program of a cluster, by name. The first time, this takes minutes."""
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
    """Those that are missing. One process at a time: who waited finds everything built."""
    with locked(cache() / "lock"):
        for each in programs:
            each()
        shutil.rmtree(compiler_cache(), ignore_errors=True)


def kubernetes() -> None:
    """Together, so that one is linked while another is compiled. What was compiled before a build
    was broken off is not compiled again."""
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
    made = fresh_folder(key)
    go("build", "-trimpath", "-ldflags", flags, "-o", f"{made}/", *packages)
    keep(made, key)


def install(*packages: str, folder: Path) -> None:
    """By their own module, which needs other versions of its libraries than Kubernetes does."""
    go("install", "-trimpath", "-ldflags", "-s -w", *packages, GOBIN=str(folder))


def go(*arguments: str, **settings: str) -> str:
    environment = os.environ | SETTINGS | {"GOCACHE": str(compiler_cache())} | settings
    done = subprocess.run(
        [*ENDS_WITH_US, "timeout", str(LIMIT_S), "go", *arguments],
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
    """One file after the other, so that a program in the cache is a whole one."""
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
