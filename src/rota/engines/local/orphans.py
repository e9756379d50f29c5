"""Kill the processes of a worker whose supervisor has died."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from rota.engines.local.supervisor import cgroups, kill_tree, proc
from rota.engines.local.supervisor.records import WorkerSpec

RETRY_S = 0.02
RETRY_S_MAX = 1.0
CLEANUP_TRIES = 3
EMPTY_SCANS = 2
"""Scans in a row that must find nothing: during execve a process has no environment for a moment,
so that a single scan can miss it."""


def kill_orphans(spec: WorkerSpec) -> int:
    """Kill all processes of the worker and return their number.

    Returns only when no process is left, which takes as long as the kernel needs to release the
    GPU. Blocks: call it in a thread.
    """
    folders = spec.cgroups
    seen: set[int] = set()

    def members() -> proc.ProcessTable:
        found = proc.with_marker(spec.marker) | cgroups.members(folders)
        seen.update(found)
        return found

    wait_s = RETRY_S
    n_empty = 0
    while n_empty < EMPTY_SCANS:
        if members():
            cgroups.kill(folders)
            kill_tree.kill_all(members)
            n_empty = 0
        else:
            n_empty += 1
        time.sleep(wait_s)
        wait_s = min(RETRY_S_MAX, wait_s * 2) if n_empty == 0 else RETRY_S
    cgroups.remove(folders)
    if spec.cleanup:
        _clean_up(spec)
    return len(seen)


def _clean_up(spec: WorkerSpec) -> None:
    """Remove the container. The first try may fail: if the monitor of the container was killed,
    Podman waits for its exit record, times out, and only then marks the container as ended."""
    identity: dict[str, Any] = {}
    if spec.uid is not None:
        identity = {"user": spec.uid, "group": spec.gid, "extra_groups": spec.groups}
    for _ in range(CLEANUP_TRIES):
        code = subprocess.call(
            spec.cleanup,
            env=spec.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **identity,
        )
        if code == 0:
            return
