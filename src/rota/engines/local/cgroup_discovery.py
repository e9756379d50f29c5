"""Find the control groups that the daemon may create, once at its start.

Supports version 1, version 2 and both side by side: each controller is used in the hierarchy where
it is mounted and writable below the daemon's own group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "memory", "pids")
DAEMON_GROUP = "daemon"
"""The group to which a daemon moves, so that its own group may have child groups with limits."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Base directories of the workers' control groups: `ending` (`kill` or `freezer`) to kill a
    worker at once, `limits` for the resource limits."""

    ending: Mapping[str, str]
    limits: Mapping[str, str]

    def folders(self, name: str, *, wanted: frozenset[str]) -> dict[str, str]:
        """Return the control groups of one worker. To join a group takes half a millisecond, so a
        worker gets only the groups that it needs."""
        chosen = dict(self.ending)
        chosen.update((key, base) for key, base in self.limits.items() if key in wanted)
        return {key: f"{base}/{name}" for key, base in chosen.items()}


NONE = Hierarchies(ending={}, limits={})


@dataclass(frozen=True, slots=True)
class _Mounted:
    """A mounted hierarchy, and the directory of the daemon's own group in it."""

    is_unified: bool
    controllers: frozenset[str]
    own: Path


def name_for(root: Path) -> str:
    """Return a group name that is unique to this state directory, so that two daemons on one
    machine use different groups."""
    found = root.stat()
    return f"rota-{found.st_dev}-{found.st_ino}"


def find(name: str, *, proc: Path = Path("/proc/self")) -> Hierarchies:
    """Create the group `name` in every writable hierarchy; the groups of workers go below it."""
    ending: dict[str, str] = {}
    limits: dict[str, str] = {}
    # Version 2 first: it can kill a whole group at once, and the freezer is not needed then.
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
    """Remove the base groups, except those that still hold a worker."""
    for base in {*found.ending.values(), *found.limits.values()}:
        with suppress(OSError):
            Path(base).rmdir()


def usable(proc: Path) -> frozenset[str]:
    """What `find` can use in the groups of a process, without a change to them: names of limits,
    and `kill` or `freezer`. Empty if the caller may not write there."""
    found: set[str] = set()
    for mounted in _mounted(proc):
        if mounted.is_unified:
            found |= {"kill", *_enabled(mounted.own)}
        else:
            found |= mounted.controllers & {*CONTROLLERS, "freezer"}
    return frozenset(found)


def _enabled(own: Path) -> frozenset[str]:
    """Version 2: the controllers that child groups have, or would have if `own` has no other
    process than the caller. Only the root group has no `cgroup.type`."""
    group = own.parent if own.name == DAEMON_GROUP else own
    is_alone = (group / "cgroup.procs").read_text().split() in ([], [str(os.getpid())])
    can_enable = is_alone or not (group / "cgroup.type").exists()
    file = "cgroup.controllers" if can_enable else "cgroup.subtree_control"
    return frozenset((group / file).read_text().split()) & frozenset(CONTROLLERS)


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
    """Yield (controller, path of the daemon's group); the controller of version 2 is ""."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        for controller in controllers.split(","):
            yield controller, path


def _delegate(mounted: _Mounted, base: Path) -> frozenset[str]:
    """Version 2: delegate the controllers to `base`; return those that the kernel grants."""
    offered = set((mounted.own / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
    granted: set[str] = set()
    for controller in sorted(offered):
        with suppress(OSError):
            _enable_below(mounted.own, controller)
            (base / "cgroup.subtree_control").write_text(f"+{controller}")
            granted.add(controller)
    return frozenset(granted)


def _enable_below(own: Path, controller: str) -> None:
    """Enable a controller for child groups. The kernel forbids this for a group that has processes
    of its own, unless it is the root group. If the daemon is the only process there (a service),
    it moves to a child group first."""
    switch = own / "cgroup.subtree_control"
    try:
        switch.write_text(f"+{controller}")
    except OSError:
        if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            raise
        aside = own / DAEMON_GROUP
        aside.mkdir(exist_ok=True)
        (aside / "cgroup.procs").write_text("0")
        switch.write_text(f"+{controller}")
