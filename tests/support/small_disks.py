"""Small disks of a daemon's own, and how to fill them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
BLOCK = bytes(4096)


def on_a_disk(folder: str, size: str) -> list[str]:
    """A runner that mounts so much on this folder below ROTA_HOME. The daemon's own log is there,
    too, as it is with `rota up --detach`."""
    place = f'"$ROTA_HOME/{folder}"'
    mount = f"mkdir -p {place} && mount -t tmpfs -o size={size},mode=700 tmpfs {place}"
    return [*UNSHARE, "sh", "-c", f'{mount} && exec "$@" 2>> {place}/daemon.log', "sh"]


def can_mount(folder: Path) -> bool:
    command = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def fill(path: Path) -> None:
    """Until there is room for nothing else."""
    with path.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(BLOCK)
            except OSError:
                return
