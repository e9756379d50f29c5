"""Helm, built once from its module, beside the programs of the cluster."""

import shutil
from pathlib import Path

from tests.kubernetes.cluster.binaries import (
    MissingError,
    compiler_cache,
    fresh_folder,
    go,
    keep,
    say,
)
from tests.kubernetes.cluster.locks import locked
from tests.kubernetes.cluster.places import cache

VERSION = "v3.22.0"
MODULE = "helm.sh/helm/v3/cmd/helm"
KEY = f"helm-{VERSION}"


def helm() -> Path:
    """Where it is: what is kept, else that of the machine, else built."""
    kept = cache() / KEY / "helm"
    if kept.exists():
        return kept
    with locked(cache() / "lock"):
        if kept.exists():
            return kept
        if found := shutil.which("helm"):
            return Path(found)
        if shutil.which("go") is None:
            raise MissingError("no Helm, and no Go to build it")
        say(f"building helm {VERSION} (once; a few minutes)")
        made = fresh_folder(KEY)
        go("install", "-trimpath", "-ldflags", "-s -w", f"{MODULE}@{VERSION}", bin_=made)
        keep(made, KEY)
        shutil.rmtree(compiler_cache(), ignore_errors=True)
    return kept
