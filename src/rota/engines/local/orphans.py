"""Kill the processes of a worker whose supervisor has died."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any, NamedTuple

from rota.engines.local.supervisor import cgroups, kill_tree, proc
from rota.engines.local.supervisor.records import WorkerSpec

RETRY_S = 0.02
RETRY_S_MAX = 1.0
CLEANUP_TRIES = 3
LIMIT_S = 5.0
"""A process that the kernel does not end must not keep the thread."""
EMPTY_SCANS = 2
"""Scans in a row that must find nothing: during execve a process has no environment for a moment,
so that a single scan can miss it."""


class OrphanClean(NamedTuple):
    """`n_ended` processes were found. `n_left` of them have not ended yet."""

    n_ended: int
    n_left: int = 0
    remains: str = ""
    """What the clean-up left behind, for an administrator."""


def kill_orphans(spec: WorkerSpec, *, limit_s: float = LIMIT_S) -> OrphanClean:
    """Kill all processes of the worker, then remove its container.

    Returns when no process is left, which takes as long as the kernel needs to release the GPU, or
    after the limit: then call it again. Blocks: call it in a thread.
    """
    until_s = time.monotonic() + limit_s
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
            if time.monotonic() >= until_s and (left := members()):
                return OrphanClean(len(seen), n_left=len(left))
        else:
            n_empty += 1
        time.sleep(wait_s)
        wait_s = min(RETRY_S_MAX, wait_s * 2) if n_empty == 0 else RETRY_S
    cgroups.remove(folders)
    return OrphanClean(len(seen), remains=_clean_up(spec) if spec.cleanup else "")


def _clean_up(spec: WorkerSpec) -> str:
    """Remove the container; returns what is left. The first try may fail: if the monitor of the
    container was killed, Podman waits for its exit record, times out, and only then marks the
    container as ended."""
    identity: dict[str, Any] = {}
    if spec.uid is not None:
        identity = {"user": spec.uid, "group": spec.gid, "extra_groups": spec.groups}
    for _ in range(CLEANUP_TRIES):
        process = subprocess.Popen(
            spec.cleanup,
            env=spec.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **identity,
        )
        try:
            if process.wait(spec.cleanup_s) == 0:
                return ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"'{' '.join(spec.cleanup)}' did not end within {spec.cleanup_s:g} s"
    return f"'{' '.join(spec.cleanup)}' failed"
