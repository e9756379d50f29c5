"""Which control groups this machine lets us make, found once when the daemon starts.

Version 1, version 2, or both side by side: whatever is mounted and writable below the daemon's
own groups is used, each controller where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "memory", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Folders below which a worker's own are made: `kill` or `freezer`, to end it at once, and
    those of the limits."""

    ending: Mapping[str, str]
    limits: Mapping[str, str]

    def folders(self, name: str, *, wanted: frozenset[str]) -> dict[str, str]:
        """The groups of one worker. Joining one costs half a millisecond, so that only those that
        are wanted are made."""
        chosen = dict(self.ending)
        chosen.update((key, base) for key, base in self.limits.items() if key in wanted)
        return {key: f"{base}/{name}" for key, base in chosen.items()}


NONE = Hierarchies(ending={}, limits={})


@dataclass(frozen=True, slots=True)
class _Mounted:
    """A hierarchy, and the folder of our own group in it."""

    is_unified: bool
    controllers: frozenset[str]
    own: Path


def name_for(root: Path) -> str:
    """After the folder of a daemon, wherever it is mounted, so that two daemons do not meet."""
    found = root.stat()
    return f"rota-{found.st_dev}-{found.st_ino}"


def find(name: str, *, proc: Path = Path("/proc/self")) -> Hierarchies:
    """Make a group `name` in every hierarchy that lets us, for workers to have theirs below."""
    ending: dict[str, str] = {}
    limits: dict[str, str] = {}
    # Version 2 first: where it can kill a group at once, nothing has to be frozen for that.
    for mounted in sorted(_mounted(proc), key=lambda each: not each.is_unified):
        useful = set(CONTROLLERS) if "kill" in ending else {*CONTROLLERS, "freezer"}
        useful &= mounted.controllers
        if not useful and not mounted.is_unified:
            continue
        base = mounted.own / name
        with suppress(OSError):
            base.mkdir(exist_ok=True)
            granted = _delegate(mounted, base) if mounted.is_unified else useful
            limits.update((key, str(base)) for key in granted if key in CONTROLLERS)
            if mounted.is_unified:
                ending["kill"] = str(base)
            elif "freezer" in granted:
                ending["freezer"] = str(base)
    return Hierarchies(ending, limits)


def remove(found: Hierarchies) -> None:
    """Unless a worker is still in it."""
    for base in {*found.ending.values(), *found.limits.values()}:
        with suppress(OSError):
            Path(base).rmdir()


def _mounted(proc: Path) -> Iterator[_Mounted]:
    own_paths = dict(_own_paths((proc / "cgroup").read_text()))
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", maxsplit=2)
        root, mount_point = before.split()[3:5]
        names = set(options.split()[-1].split(",")) if kind == "cgroup" else set[str]()
        key = "" if kind == "cgroup2" else next((name for name in names if name in own_paths), None)
        if kind not in ("cgroup", "cgroup2") or key is None or key not in own_paths:
            continue
        inside = os.path.relpath(own_paths[key], root)
        own = Path(mount_point) / inside if not inside.startswith("..") else Path(mount_point)
        if os.access(own, os.W_OK):
            yield _Mounted(kind == "cgroup2", frozenset(names), own)


def _own_paths(cgroup: str) -> Iterator[tuple[str, str]]:
    """Controller -> the path of our group; "" stands for version 2."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        for controller in controllers.split(","):
            yield controller, path


def _delegate(mounted: _Mounted, base: Path) -> frozenset[str]:
    """Version 2: hand the controllers down to `base`, as far as that is possible."""
    offered = set((mounted.own / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
    granted: set[str] = set()
    for controller in sorted(offered):
        with suppress(OSError):
            _hand_down(mounted.own, controller)
            (base / "cgroup.subtree_control").write_text(f"+{controller}")
            granted.add(controller)
    return frozenset(granted)


def _hand_down(own: Path, controller: str) -> None:
    """A group that has processes of its own may not hand controllers down (the root may). If we
    are alone in ours, as a service is, we step into a group beside those of the workers."""
    switch = own / "cgroup.subtree_control"
    try:
        switch.write_text(f"+{controller}")
    except OSError:
        if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            raise
        aside = own / "daemon"
        aside.mkdir(exist_ok=True)
        (aside / "cgroup.procs").write_text("0")
        switch.write_text(f"+{controller}")
