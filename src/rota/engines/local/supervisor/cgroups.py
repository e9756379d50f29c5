"""A worker's control groups, as its keeper uses them: made, joined, limited, killed, removed.

The folders come with the order (`hierarchies.py` chooses them). Version 1 has a folder for each
controller; version 2 has one for all, which is then named under several keys. Whatever the kernel
refuses is noted and lived without.
"""

from __future__ import annotations

import os
import time

from rota.engines.local import procs, tree
from rota.engines.local.order import Order

CPU_PERIOD_US = 100_000
FREEZE_S_MAX = 0.5


def make(order: Order) -> list[str]:
    """Make the folders and set the limits; what could not be done, in words."""
    notes: list[str] = []
    for folder in dict.fromkeys(order.cgroups.values()):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            notes.append(f"no control group {folder}: {error.strerror}")
    for path, value in _limits(order):
        try:
            _put(path, value)
        except OSError as error:
            notes.append(f"limit {path} = {value} was not set: {error.strerror}")
    return notes


def join(order: Order) -> None:
    """Called in the worker's process, before it gives up its rights."""
    for folder in dict.fromkeys(order.cgroups.values()):
        try:
            _put(f"{folder}/cgroup.procs", "0")
        except OSError:
            continue


def kill(folders: dict[str, str]) -> None:
    """Kill every process of the group at once, before it can start another."""
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
    tree.end(lambda: procs.listed(folders["freezer"]))
    _try_put(state, "THAWED")


def members(folders: dict[str, str]) -> procs.Found:
    found: procs.Found = {}
    for folder in dict.fromkeys(folders.values()):
        found.update(procs.listed(folder))
    return found


def remove(folders: dict[str, str]) -> None:
    for folder in dict.fromkeys(folders.values()):
        try:
            os.rmdir(folder)
        except OSError:
            continue


def ran_out_of_memory(folders: dict[str, str]) -> bool:
    """Whether the kernel ended a process of the group because of its memory limit."""
    folder = folders.get("memory")
    if folder is None:
        return False
    counts = _get(f"{folder}/memory.events") or _get(f"{folder}/memory.oom_control")
    return any(
        line.startswith("oom_kill ") and line != "oom_kill 0" for line in counts.splitlines()
    )


def _limits(order: Order) -> list[tuple[str, str]]:
    folders = order.cgroups
    limits: list[tuple[str, str]] = []
    if order.cpus and (folder := folders.get("cpu")):
        quota = max(1000, int(order.cpus * CPU_PERIOD_US))
        if _is_unified(folder):
            limits.append((f"{folder}/cpu.max", f"{quota} {CPU_PERIOD_US}"))
        else:
            limits.append((f"{folder}/cpu.cfs_period_us", str(CPU_PERIOD_US)))
            limits.append((f"{folder}/cpu.cfs_quota_us", str(quota)))
    if order.memory_bytes and (folder := folders.get("memory")):
        name = "memory.max" if _is_unified(folder) else "memory.limit_in_bytes"
        limits.append((f"{folder}/{name}", str(order.memory_bytes)))
        # Swap would let a worker run on, very slowly, past the memory that it was given.
        swap = ("memory.swap.max", "0")
        if not _is_unified(folder):
            swap = ("memory.memsw.limit_in_bytes", str(order.memory_bytes))
        if os.access(f"{folder}/{swap[0]}", os.W_OK):
            limits.append((f"{folder}/{swap[0]}", swap[1]))
    if order.pids_max and (folder := folders.get("pids")):
        limits.append((f"{folder}/pids.max", str(order.pids_max)))
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
