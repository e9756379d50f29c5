"""The control groups of containers, which do not end with the processes in them."""

import time
from collections.abc import Iterable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PATIENCE_S = 10.0


def cgroups(containers: Iterable[str]) -> list[Path]:
    """In every hierarchy of the first version, or in the only one of the second."""
    patterns = ("*/k8s.io", "k8s.io")
    parents = [path for pattern in patterns for path in CGROUPS.glob(pattern)]
    folders = [parent / container for parent in parents for container in containers]
    return [folder for folder in folders if folder.is_dir()]


def remove_cgroups(containers: Iterable[str]) -> None:
    until = time.monotonic() + PATIENCE_S
    for root in cgroups(containers):
        for folder in (*sorted(root.rglob("*/"), reverse=True), root):
            remove(folder, until=until)


def remove(folder: Path, *, until: float) -> None:
    """A group whose processes are only just dying is busy for a moment."""
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
