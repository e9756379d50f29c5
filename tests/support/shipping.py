"""Folders to ship, and a daemon's shelves without the HTTP in between."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from rota.daemon.artifacts.snapshots import Snapshots
from rota.wire.manifest import SnapshotManifest

UID = 4321
"""A user who ships code."""


class DirectApi:
    """What the HTTP API will do for one user, in this process. Manifests travel as text."""

    def __init__(self, snapshots: Snapshots, owner: int = UID) -> None:
        self._snapshots = snapshots
        self._owner = owner
        self.sent: list[str] = []

    def missing(self, manifest: SnapshotManifest) -> list[str]:
        return self._snapshots.missing(_sent(manifest), owner=self._owner)

    def put_blob(self, sha256: str, file: BinaryIO) -> None:
        self.sent.append(sha256)
        self._snapshots.receive(sha256, iter(lambda: file.read(1000), b""), owner=self._owner)

    def finish(self, manifest: SnapshotManifest) -> str:
        return self._snapshots.finish(_sent(manifest), owner=self._owner)


def _sent(manifest: SnapshotManifest) -> SnapshotManifest:
    return SnapshotManifest.of_json(manifest.to_json())


def tree_of(folder: Path) -> dict[str, tuple[str | bytes, bool]]:
    """Every file and link by its path: its content or target, and whether it may be run."""
    found: dict[str, tuple[str | bytes, bool]] = {}
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            name = str(path.relative_to(folder))
            if stat.S_ISLNK(mode):
                found[name] = (str(path.readlink()), False)
            elif stat.S_ISREG(mode):
                found[name] = (path.read_bytes(), bool(mode & 0o100))
    return found


def names_in(folder: Path) -> list[str]:
    """All that a shelf holds, by kind."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
