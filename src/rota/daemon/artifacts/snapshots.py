"""The snapshots (folders shipped with jobs) of all users. The entry point of this package.

Called by the API, the launcher and the clean-up of ended jobs. All methods block on the disk and
are thread-safe. Only one process may use a root folder.

Every user has a separate store. A hash gives no access to another user's file, and the daemon does
not reveal whether another user has it.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import BinaryIO

from rota.config.limits import DEFAULT_LIMITS
from rota.daemon.artifacts.extract import FileOwner
from rota.daemon.artifacts.fsutil import make_folder, translate_os_errors
from rota.daemon.artifacts.upload import BlobUpload
from rota.daemon.artifacts.user_store import UserSnapshotStore, remove_leftovers
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.manifest import SHA256, SnapshotManifest

UNUSED_S = 3600.0
"""How long an unused snapshot is kept: the submit of its job follows the upload."""

BY_NAME = "name-"
JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SnapshotOwner = int | str
"""The uid of a user; the name of a user who has no account on this machine."""


def snapshot_owner(user: str, uid: int) -> SnapshotOwner:
    return uid if uid >= 0 else user


def snapshot_owner_of(submission: Submission) -> SnapshotOwner:
    return snapshot_owner(submission.user, submission.uid)


class Snapshots:
    """`owner` is always the calling user, or the submitter of the job."""

    def __init__(
        self,
        root: Path,
        *,
        quota_bytes: int = DEFAULT_LIMITS.max_shipped_bytes,
        quota_files: int = DEFAULT_LIMITS.max_shipped_files,
    ) -> None:
        """The quotas of one user: all blobs, plus the unpacked tree of each snapshot."""
        self._root = root
        self._quota_bytes, self._quota_files = quota_bytes, quota_files
        self._lock = threading.Lock()
        with translate_os_errors(root):
            make_folder(root, 0o711)
        self._user_stores: dict[str, UserSnapshotStore] = {}
        self._opening: dict[str, threading.Lock] = {}
        for name in self._names():
            remove_leftovers(root / name)

    def missing(self, manifest: SnapshotManifest, *, owner: SnapshotOwner) -> list[str]:
        """The hashes of the blobs that must be uploaded before `finish`."""
        return self._user_store(owner).missing(manifest)

    def receive(self, sha256: str, chunks: Iterable[bytes], *, owner: SnapshotOwner) -> None:
        """Store a blob. If its hash differs or it is too large, nothing is stored."""
        with self.upload(sha256, owner=owner) as content:
            for chunk in chunks:
                content.write(chunk)
            content.keep()

    def upload(self, sha256: str, *, owner: SnapshotOwner) -> BlobUpload:
        """Start the upload of a blob that arrives in chunks."""
        return BlobUpload(self._user_store(owner), _checked(sha256))

    def finish(self, manifest: SnapshotManifest, *, owner: SnapshotOwner) -> str:
        """Create a snapshot whose blobs are all uploaded; returns its id when it is on disk."""
        return self._user_store(owner).finish(manifest)

    def has(self, snapshot_id: str, *, owner: SnapshotOwner) -> bool:
        """Whether this user has the snapshot."""
        return self._user_store(owner).has(_checked(snapshot_id))

    def manifest(self, snapshot_id: str, *, owner: SnapshotOwner) -> SnapshotManifest:
        """The manifest of a snapshot of this user."""
        return self._user_store(owner).manifest(_checked(snapshot_id))

    def open(self, sha256: str, *, owner: SnapshotOwner) -> BinaryIO:
        """Open a blob of this user."""
        return self._user_store(owner).open(_checked(sha256))

    def unpack(self, snapshot_id: str, *, job_id: str, owner: int, gid: int) -> Path:
        """The job's own copy of a snapshot, unpacked at the first call. If the daemon is root, the
        files belong to the owner."""
        given = FileOwner(owner, gid) if os.geteuid() == 0 else None
        store = self._user_store(owner)
        return store.unpack(_checked(snapshot_id), given, job_id=_checked_job(job_id))

    def workdir(self, job_id: str, *, owner: int) -> Path | None:
        """The job's own copy of its snapshot, if it still exists."""
        return self._user_store(owner).workdir(_checked_job(job_id))

    def prune_workdirs(self, live: Collection[str], *, unused_s: float) -> None:
        """Remove the copies of jobs that ended longer ago than `unused_s`."""
        before_s = time.time() - unused_s
        failure = None
        for name in self._names():
            try:
                self._named(name).prune_workdirs(live, before_s=before_s)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = failure or error
        if failure is not None:
            raise failure

    def used_bytes(self, *, owner: SnapshotOwner) -> int:
        return self._user_store(owner).used_bytes

    def used(self, *, owner: SnapshotOwner) -> tuple[int, int]:
        """The bytes and files that count for the quotas of a user."""
        if not (self._root / _name_for(owner)).exists():
            return 0, 0
        store = self._user_store(owner)
        return store.used_bytes, store.used_files

    def prune(
        self,
        keep: Collection[tuple[SnapshotOwner, str]],
        *,
        spared: Collection[SnapshotOwner] = (),
        unused_s: float = UNUSED_S,
    ) -> int:
        """Remove snapshots and blobs that none of `keep` (owner, snapshot id) needs and that are
        unused for `unused_s`; returns the freed bytes. Those of `spared` owners stay. An error with
        one owner is raised after the snapshots of the others were removed."""
        before_s = time.time() - unused_s
        freed_bytes, failure = 0, None
        spared_names = {_name_for(owner) for owner in spared}
        for name in self._names():
            if name in spared_names:
                continue
            kept = {snapshot_id for owner, snapshot_id in keep if _name_for(owner) == name}
            try:
                freed_bytes += self._named(name).prune(kept, before_s=before_s)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = failure or error
        if failure is not None:
            raise failure
        return freed_bytes

    def _names(self) -> list[str]:
        with translate_os_errors(self._root):
            found = [each.name for each in self._root.iterdir()]
        return [each for each in found if each.isdecimal() or each.startswith(BY_NAME)]

    def _user_store(self, owner: SnapshotOwner) -> UserSnapshotStore:
        return self._named(_name_for(owner))

    def _named(self, name: str) -> UserSnapshotStore:
        """Opening a store counts its files, so it delays only requests about the same user."""
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:
            if name not in self._user_stores:
                self._user_stores[name] = UserSnapshotStore(
                    self._root / name,
                    quota_bytes=self._quota_bytes,
                    quota_files=self._quota_files,
                )
            return self._user_stores[name]


def _name_for(owner: SnapshotOwner) -> str:
    """The folder name of a user's store. A user name is hashed: it may not be a valid file name."""
    if isinstance(owner, str):
        return BY_NAME + hashlib.sha256(owner.encode()).hexdigest()[:32]
    if owner < 0:
        raise UserError(f"{owner} is not a valid uid")
    return str(owner)


def _checked_job(job_id: str) -> str:
    """Validate a job id, because it becomes a file name."""
    if not JOB_ID.fullmatch(job_id):
        raise UserError(f"job id {job_id[:80]!r} cannot be the name of a folder")
    return job_id


def _checked(sha256: str) -> str:
    """Validate a hash, because it becomes a file name."""
    if not SHA256.fullmatch(sha256):
        raise UserError(
            f"{sha256[:80]!r} is not a SHA-256 hash", "use 64 hexadecimal digits in lower case"
        )
    return sha256
