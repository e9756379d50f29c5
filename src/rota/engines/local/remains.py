"""What is left of a worker whose keeper died: its processes are found and ended."""

from __future__ import annotations

import time

from rota.engines.local import cgroups, procs, tree

AGAIN_S = 0.02
AGAIN_S_MAX = 1.0


def end_remains(marker: str, folders: dict[str, str]) -> int:
    """Returns when no process is left, which may take as long as the kernel takes to let go of a
    GPU; how many there were. Blocks: call it in a thread."""
    seen: set[int] = set()

    def members() -> procs.Found:
        found = procs.marked(marker) | cgroups.members(folders)
        seen.update(found)
        return found

    wait_s = AGAIN_S
    while members():
        cgroups.kill(folders)
        tree.end(members)
        time.sleep(wait_s)
        wait_s = min(AGAIN_S_MAX, wait_s * 2)
    cgroups.remove(folders)
    return len(seen)
