"""The control groups of a worker: create, join, limit, kill and remove them.

The directories come with the worker's spec (`cgroup_discovery.py` chooses them). Version 1 has one
directory per controller; version 2 has one for all, which then appears under several keys. If the
kernel refuses a group or a limit, the worker runs without it and `make` returns a note.
"""

from __future__ import annotations

import os
import time

from rota.engines.local.supervisor import kill_tree, proc
from rota.engines.local.supervisor.records import WorkerSpec

CPU_PERIOD_US = 100_000
FREEZE_S_MAX = 0.5


def make(spec: WorkerSpec) -> list[str]:
    """Create the groups and set the limits; return a note for each failure."""
    notes: list[str] = []
    for folder in dict.fromkeys(spec.cgroups.values()):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            notes.append(f"no control group {folder}: {error.strerror}")
    for path, value in _limits(spec):
        try:
            _put(path, value)
        except OSError as error:
            notes.append(f"limit {path} = {value} was not set: {error.strerror}")
    return notes


def fork_into(spec: WorkerSpec) -> int:
    """Fork a process that is born in the worker's group of version 2, if it has one. To move a
    process there later, the kernel first waits for all CPUs, for 10 ms and more."""
    unified = next((each for each in spec.cgroups.values() if _is_unified(each)), "")
    try:
        fd = os.open(unified, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return os.fork()
    try:
        return proc.fork_into_cgroup(fd)
    except OSError:
        # An old kernel, or a group that the process must enter by itself.
        return os.fork()
    finally:
        os.close(fd)


def join(spec: WorkerSpec) -> None:
    """Move this process into the groups, where it is not there yet. Call it in the worker's
    process, before it drops its privileges."""
    for folder in dict.fromkeys(spec.cgroups.values()):
        # Version 1 moves a single thread, which this process is, without a wait for all CPUs.
        name = "cgroup.procs" if _is_unified(folder) else "tasks"
        if name == "tasks" or not _is_inside(folder):
            _try_put(f"{folder}/{name}", "0")


def _is_inside(folder: str) -> bool:
    """Whether this process is in a group of version 2."""
    line = next((each for each in _get("/proc/self/cgroup").split() if each[:3] == "0::"), "")
    return line.endswith(f"/{os.path.basename(folder)}")


def kill(folders: dict[str, str]) -> None:
    """Kill all processes of the group at once, before they can start others."""
    if "kill" in folders and _try_put(f"{folders['kill']}/cgroup.kill", "1"):
        return
    if "freezer" not in folders:
        return
    state = f"{folders['freezer']}/freezer.state"
    if not _try_put(state, "FROZEN"):
        return
    give_up_at = time.monotonic() + FREEZE_S_MAX
    while _get(state) != "FROZEN" and time.monotonic() < give_up_at:
        time.sleep(0.001)
    kill_tree.kill_all(lambda: proc.in_cgroup(folders["freezer"]))
    _try_put(state, "THAWED")


def members(folders: dict[str, str]) -> proc.ProcessTable:
    found: proc.ProcessTable = {}
    for folder in dict.fromkeys(folders.values()):
        found.update(proc.in_cgroup(folder))
    return found


def remove(folders: dict[str, str]) -> None:
    for folder in dict.fromkeys(folders.values()):
        try:
            os.rmdir(folder)
        except OSError:
            continue


def ran_out_of_memory(folders: dict[str, str]) -> bool:
    """Whether the kernel killed a process of the group at its memory limit."""
    folder = folders.get("memory")
    if folder is None:
        return False
    counts = _get(f"{folder}/memory.events") or _get(f"{folder}/memory.oom_control")
    return any(
        line.startswith("oom_kill ") and line != "oom_kill 0" for line in counts.splitlines()
    )


def _limits(spec: WorkerSpec) -> list[tuple[str, str]]:
    folders = spec.cgroups
    limits: list[tuple[str, str]] = []
    if spec.cpus and (folder := folders.get("cpu")):
        quota = max(1000, int(spec.cpus * CPU_PERIOD_US))
        if _is_unified(folder):
            limits.append((f"{folder}/cpu.max", f"{quota} {CPU_PERIOD_US}"))
        else:
            limits.append((f"{folder}/cpu.cfs_period_us", str(CPU_PERIOD_US)))
            limits.append((f"{folder}/cpu.cfs_quota_us", str(quota)))
    if spec.memory_bytes and (folder := folders.get("memory")):
        name = "memory.max" if _is_unified(folder) else "memory.limit_in_bytes"
        limits.append((f"{folder}/{name}", str(spec.memory_bytes)))
        # No swap: a worker would exceed its memory limit and become very slow.
        swap = ("memory.swap.max", "0")
        if not _is_unified(folder):
            swap = ("memory.memsw.limit_in_bytes", str(spec.memory_bytes))
        if os.access(f"{folder}/{swap[0]}", os.W_OK):
            limits.append((f"{folder}/{swap[0]}", swap[1]))
    if spec.pids_max and (folder := folders.get("pids")):
        limits.append((f"{folder}/pids.max", str(spec.pids_max)))
    return limits


def _is_unified(folder: str) -> bool:
    return os.access(f"{folder}/cgroup.controllers", os.F_OK)


def _put(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _try_put(path: str, value: str) -> bool:
    try:
        _put(path, value)
    except OSError:
        return False
    return True


def _get(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 65536).decode().strip()
    finally:
        os.close(fd)
