"""What is left of a worker whose keeper died: its processes are found and ended."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from rota.engines.local import cgroups, procs, tree
from rota.engines.local.order import Order

AGAIN_S = 0.02
AGAIN_S_MAX = 1.0
QUIET_LOOKS = 2
"""In a row: a process that is just becoming another program has no environment for a moment, so
that one look can miss it."""


def end_remains(order: Order) -> int:
    """Returns when no process is left, which may take as long as the kernel takes to let go of a
    GPU; how many there were. Blocks: call it in a thread."""
    folders = order.cgroups
    seen: set[int] = set()

    def members() -> procs.Found:
        found = procs.marked(order.marker) | cgroups.members(folders)
        seen.update(found)
        return found

    wait_s = AGAIN_S
    n_quiet = 0
    while n_quiet < QUIET_LOOKS:
        if members():
            cgroups.kill(folders)
            tree.end(members)
            n_quiet = 0
        else:
            n_quiet += 1
        time.sleep(wait_s)
        wait_s = min(AGAIN_S_MAX, wait_s * 2) if n_quiet == 0 else AGAIN_S
    cgroups.remove(folders)
    if order.cleanup:
        _clean_up(order)
    return len(seen)


def _clean_up(order: Order) -> None:
    identity: dict[str, Any] = {}
    if order.uid is not None:
        identity = {"user": order.uid, "group": order.gid, "extra_groups": order.groups}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.run(
        order.cleanup,
        env=order.env,
        cwd="/",
        check=False,
        stderr=subprocess.DEVNULL,
        **quiet,
        **identity,
    )
