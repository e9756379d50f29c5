"""The folders that users ship with their jobs, as the daemon keeps them.

Called by the API, and by whoever starts jobs and forgets them. All of it blocks on the disk and
may be called by many threads. One process alone may use a root.

Knowing a hash is not owning a file: every user has a shelf of their own, and one is never asked
for what another holds, not even whether it is there.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import BinaryIO

from rota.daemon.disk import faults, make_folder
from rota.daemon.incoming import Incoming
from rota.daemon.shelf import Shelf, clean
from rota.daemon.unpacking import Owner
from rota.errors import UnavailableError, UserError
from rota.store.records import Submission
from rota.wire.manifest import GIB, SHA256, Manifest

QUOTA_BYTES = 20 * GIB
"""For one user: contents once, and each snapshot once more for its tree."""
UNUSED_S = 3600.0
"""How long something stays that no job uses: a job's submit follows its snapshot."""

BY_NAME = "name-"
Shipper = int | str
"""The uid of somebody; of one who has no account here, their name."""


def shipper(user: str, uid: int) -> Shipper:
    return uid if uid >= 0 else user


def shipper_of(submission: Submission) -> Shipper:
    return shipper(submission.user, submission.uid)


class Snapshots:
    """`owner` is always the user who asks, or the job's submitter."""

    def __init__(self, root: Path, *, quota_bytes: int = QUOTA_BYTES) -> None:
        self._root = root
        self._quota_bytes = quota_bytes
        self._lock = threading.Lock()
        with faults(root):
            make_folder(root, 0o711)
        self._shelves: dict[str, Shelf] = {}
        for name in self._names():
            clean(root / name)

    def missing(self, manifest: Manifest, *, owner: Shipper) -> list[str]:
        """The hashes of the contents that are to be sent before `finish`."""
        return self._shelf(owner).missing(manifest)

    def receive(self, sha256: str, chunks: Iterable[bytes], *, owner: Shipper) -> None:
        """Keep a content. One of another hash, or too large, leaves nothing."""
        with self.incoming(sha256, owner=owner) as content:
            for chunk in chunks:
                content.write(chunk)
            content.keep()

    def incoming(self, sha256: str, *, owner: Shipper) -> Incoming:
        """The same for whoever is given the chunks one after the other."""
        return Incoming(self._shelf(owner), _checked(sha256))

    def finish(self, manifest: Manifest, *, owner: Shipper) -> str:
        """Make a snapshot of contents that are all there; its id. On disk when this returns."""
        return self._shelf(owner).finish(manifest)

    def has(self, snapshot_id: str, *, owner: Shipper) -> bool:
        """Whether a job of this user may name it."""
        return self._shelf(owner).has(_checked(snapshot_id))

    def manifest(self, snapshot_id: str, *, owner: Shipper) -> Manifest:
        """What a snapshot of this user holds."""
        return self._shelf(owner).manifest(_checked(snapshot_id))

    def open(self, sha256: str, *, owner: Shipper) -> BinaryIO:
        """A content that this user sent."""
        return self._shelf(owner).open(_checked(sha256))

    def unpack(self, snapshot_id: str, *, owner: int, gid: int) -> Path:
        """The folder of a snapshot, unpacked by the first who asks; the owner's, if we are root."""
        given = Owner(owner, gid) if os.geteuid() == 0 else None
        return self._shelf(owner).unpack(_checked(snapshot_id), given)

    def used_bytes(self, *, owner: Shipper) -> int:
        return self._shelf(owner).used_bytes

    def prune(self, keep: Collection[tuple[Shipper, str]], *, unused_s: float = UNUSED_S) -> int:
        """Remove what none of these snapshots, of (owner, id), needs; the bytes that it took."""
        before_s = time.time() - unused_s
        freed_bytes, trouble = 0, None
        for name in self._names():
            kept = {snapshot_id for owner, snapshot_id in keep if _name_for(owner) == name}
            try:
                freed_bytes += self._named(name).prune(kept, before_s=before_s)
            except UnavailableError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return freed_bytes

    def _names(self) -> list[str]:
        with faults(self._root):
            found = [each.name for each in self._root.iterdir()]
        return [each for each in found if each.isdecimal() or each.startswith(BY_NAME)]

    def _shelf(self, owner: Shipper) -> Shelf:
        return self._named(_name_for(owner))

    def _named(self, name: str) -> Shelf:
        with self._lock:
            if name not in self._shelves:
                self._shelves[name] = Shelf(self._root / name, quota_bytes=self._quota_bytes)
            return self._shelves[name]


def _name_for(owner: Shipper) -> str:
    """Of a shelf's folder. A name is anybody's choice, and may be no name for a file."""
    if isinstance(owner, str):
        return BY_NAME + hashlib.sha256(owner.encode()).hexdigest()[:32]
    if owner < 0:
        raise UserError(f"{owner} is no user")
    return str(owner)


def _checked(sha256: str) -> str:
    """It becomes the name of a file."""
    if not SHA256.fullmatch(sha256):
        raise UserError(f"{sha256[:80]!r} is no hash", "write it as 64 of the characters 0-9 a-f")
    return sha256
