"""The snapshots of one user on disk. Users share nothing.

    blobs/ab/abcd...   file contents, named by their hash
    manifests/ID       a line with the reserved bytes and files of the snapshot, then its manifest
    workdirs/JOB/files the copy of a snapshot in which a job works; belongs to the user, everything
                       else to the daemon. The time of JOB says when the job was last seen
    drafts/, trash/    incomplete and deleted entries; emptied at every start

Entries of the first three folders are complete: they are renamed into place.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rota.daemon.artifacts.extract import DamagedBlobError, FileOwner, unpack
from rota.daemon.artifacts.fsutil import (
    make_folder,
    occupied_bytes,
    sync,
    translate_os_errors,
)
from rota.daemon.errors import LimitError
from rota.delete_tree import delete_contents
from rota.errors import InputError, UnavailableError, UserError
from rota.wire.manifest import SnapshotManifest

MAKE_ROOM = "exclude files in .rotaignore; folders of ended jobs are deleted automatically"
SHIP_AGAIN = "ship the folder again"
TOUCH_INTERVAL_S = 300.0
"""The time of last use is not updated more often: thousands of updates at every submit would take
seconds."""
START_ENTRIES = 2000
"""Entries of one user that a start deletes at most."""
DRAFTS, TRASH, FILES = "drafts", "trash", "files"


def remove_leftovers(folder: Path) -> None:
    """Remove what a crash left behind, before the first use of a user's store. A large rest waits
    for `prune` and the next start, so that no content of a user delays this start."""
    for each in (folder / DRAFTS, folder / TRASH):
        delete_contents(each, limit=START_ENTRIES)


class CorruptSnapshotError(UnavailableError):
    """A snapshot cannot be used until the user ships the folder again."""


class UserSnapshotStore:
    """Thread-safe. There are two locks, always acquired in this order: `_unpacking` for trees
    (may be held for long), then `_lock` for everything else."""

    def __init__(self, folder: Path, *, quota_bytes: int, quota_files: int) -> None:
        self.folder = folder
        self._blobs = folder / "blobs"
        self._manifests = folder / "manifests"
        self._trees = folder / "trees"
        """Shared copies that an earlier version made."""
        self._workdirs = folder / "workdirs"
        self._drafts = folder / DRAFTS
        self._trash = folder / TRASH
        self._quota_bytes, self._quota_files = quota_bytes, quota_files
        self._unpacking = threading.Lock()
        self._lock = threading.Lock()
        with translate_os_errors(folder):
            # The user may pass through to the trees, but cannot list these folders.
            for path in (folder, self._workdirs):
                make_folder(path, 0o711)
            for path in (self._blobs, self._manifests, self._drafts, self._trash):
                make_folder(path, 0o700)
            self._used_bytes, self._used_files = self._count_used()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def used_files(self) -> int:
        return self._used_files

    # -- blobs ----------------------------------------------------------------------------------

    def missing(self, manifest: SnapshotManifest) -> list[str]:
        with self._lock, translate_os_errors(self.folder):
            return self._missing(manifest)

    def _missing(self, manifest: SnapshotManifest) -> list[str]:
        """Existing blobs are marked as used now, so that they are not pruned before the submit."""
        return [
            sha256
            for sha256, size_bytes in manifest.blobs.items()
            if not _touch(self._blob(sha256), size_bytes=size_bytes)
        ]

    def draft(self) -> Path:
        """A new path for an incomplete entry, on the same disk as its final place."""
        return self._drafts / secrets.token_hex(16)

    def put_blob(self, sha256: str, draft: Path) -> None:
        """Store a checked blob, whose space is already reserved."""
        path = self._blob(sha256)
        with self._lock, translate_os_errors(self.folder):
            make_folder(path.parent, 0o700)
            replaced_bytes = _size(path)
            draft.rename(path)
            if replaced_bytes is not None:
                self._reserve(-occupied_bytes(replaced_bytes), -1)

    def reserve(self, n_bytes: int, n_files: int = 0) -> None:
        with self._lock:
            self._reserve(n_bytes, n_files)

    def _reserve(self, n_bytes: int, n_files: int) -> None:
        """Reserve space and files; negative numbers release them. Raises beyond the quota."""
        if n_bytes > 0 and self._used_bytes + n_bytes > self._quota_bytes:
            message = f"your shipped folders exceed your quota of {self._quota_bytes:,} bytes"
            raise LimitError(message, MAKE_ROOM, setting="max_shipped_bytes")
        if n_files > 0 and self._used_files + n_files > self._quota_files:
            message = f"your shipped folders exceed your quota of {self._quota_files:,} files"
            raise LimitError(message, MAKE_ROOM, setting="max_shipped_files")
        self._used_bytes += n_bytes
        self._used_files += n_files

    def _blob(self, sha256: str) -> Path:
        return self._blobs / sha256[:2] / sha256

    # -- snapshots ------------------------------------------------------------------------------

    def has(self, snapshot_id: str) -> bool:
        """Whether the snapshot exists. Marks it as used now, because a submit will follow."""
        with translate_os_errors(self.folder):
            return _touch(self._manifests / snapshot_id)

    def manifest(self, snapshot_id: str) -> SnapshotManifest:
        with self._lock, translate_os_errors(self.folder):
            if not _touch(self._manifests / snapshot_id):
                raise UserError(f"snapshot {snapshot_id!r} does not exist", SHIP_AGAIN)
            return self._load(snapshot_id)

    def open(self, sha256: str) -> BinaryIO:
        """Open a blob for reading. The open file stays readable even if the blob is pruned."""
        with translate_os_errors(self.folder):
            try:
                return self._blob(sha256).open("rb", buffering=0)
            except FileNotFoundError:
                raise UserError(f"blob {sha256!r} does not exist", SHIP_AGAIN) from None

    def finish(self, manifest: SnapshotManifest) -> str:
        text, snapshot_id = manifest.to_json(), manifest.snapshot_id
        with self._lock, translate_os_errors(self.folder):
            if missing := self._missing(manifest):
                message = f"{len(missing):,} of the folder's files were not uploaded"
                raise UserError(message, SHIP_AGAIN)
            path = self._manifests / snapshot_id
            if _touch(path):
                sync(path.parent)
                return snapshot_id
            for folder in {self._blob(sha256).parent for sha256 in manifest.blobs}:
                sync(folder)
            sync(self._blobs)
            n_bytes = _tree_bytes(manifest) + occupied_bytes(len(text))
            n_files = 2 + len(manifest.folders) + len(manifest.entries)
            self._reserve(n_bytes, n_files)
            try:
                self._write(path, f"{n_bytes} {n_files}\n".encode() + text)
            except OSError:
                path.unlink(missing_ok=True)
                self._reserve(-n_bytes, -n_files)
                raise
        return snapshot_id

    def _write(self, path: Path, content: bytes) -> None:
        draft = self.draft()
        try:
            draft.write_bytes(content)
            sync(draft)
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
        sync(path.parent)

    def unpack(self, snapshot_id: str, owner: FileOwner | None, *, job_id: str) -> Path:
        """The job's own copy of a snapshot. The first attempt unpacks it; later ones find what the
        job has written."""
        tree = self._workdirs / job_id / FILES
        with self._unpacking, translate_os_errors(self.folder):
            if tree.exists():
                return tree
            if not _touch(self._manifests / snapshot_id):
                raise UserError(f"snapshot {snapshot_id!r} does not exist", SHIP_AGAIN)
            draft = self.draft()
            try:
                draft.mkdir(mode=0o700)
                unpack(self._load(snapshot_id), draft, source=self._blob, owner=owner)
                self._put_tree(draft, tree)
            except DamagedBlobError as error:
                self._drop_blob(error.sha256)
                message = f"a file of snapshot {snapshot_id!r} is corrupt or missing"
                raise CorruptSnapshotError(message, SHIP_AGAIN) from error
            finally:
                if draft.exists():
                    self._discard(draft)
                    delete_contents(self._trash)
        return tree

    def _put_tree(self, draft: Path, tree: Path) -> None:
        make_folder(tree.parent, 0o711)
        draft.rename(tree)
        sync(tree.parent)
        sync(self._workdirs)

    def workdir(self, job_id: str) -> Path | None:
        """The job's copy of its snapshot, if it still exists."""
        found = self._workdirs / job_id / FILES
        return found if found.is_dir() else None

    def prune_workdirs(self, live: Collection[str], *, before_s: float) -> None:
        """Remove the copies of jobs that have not been live since `before_s`."""
        with self._unpacking, translate_os_errors(self.folder):
            for path in self._workdirs.iterdir():
                if path.name in live:
                    os.utime(path)
                elif path.stat().st_mtime <= before_s:
                    self._discard(path)
        delete_contents(self._trash)

    def _load(self, snapshot_id: str) -> SnapshotManifest:
        _, _, text = (self._manifests / snapshot_id).read_bytes().partition(b"\n")
        try:
            manifest = SnapshotManifest.of_json(text)
        except InputError as error:
            raise self._corrupt(snapshot_id) from error
        if manifest.snapshot_id != snapshot_id:
            raise self._corrupt(snapshot_id)
        return manifest

    def _corrupt(self, snapshot_id: str) -> CorruptSnapshotError:
        path = self._manifests / snapshot_id
        return CorruptSnapshotError(f"{path}: the manifest is corrupt", SHIP_AGAIN)

    # -- space ----------------------------------------------------------------------------------

    def prune(self, keep: Collection[str], *, before_s: float) -> int:
        """Remove snapshots and blobs that no snapshot of `keep` needs and that were not used since
        `before_s`; returns the freed bytes."""
        with self._unpacking, translate_os_errors(self.folder), self._lock:
            before_bytes = self._used_bytes
            for path in self._manifests.iterdir():
                if path.name not in keep and path.stat().st_mtime <= before_s:
                    self._drop_snapshot(path)
            self._prune_blobs(before_s)
            freed_bytes = before_bytes - self._used_bytes
        delete_contents(self._trash)
        return freed_bytes

    def _drop_snapshot(self, manifest: Path) -> None:
        """Remove the tree first: a tree without a manifest would never be found again."""
        n_bytes, n_files = _reserved(manifest)
        self._discard(self._trees / manifest.name)
        manifest.unlink()
        self._reserve(-n_bytes, -n_files)

    def _prune_blobs(self, before_s: float) -> None:
        needed = {
            sha256 for path in self._manifests.iterdir() for sha256 in self._load(path.name).blobs
        }
        for blob, status in _files(self._blobs):
            if blob.name not in needed and status.st_mtime <= before_s:
                blob.unlink()
                self._reserve(-occupied_bytes(status.st_size), -1)

    def _drop_blob(self, sha256: str) -> None:
        with self._lock:
            n_bytes = _size(self._blob(sha256))
            if n_bytes is not None:
                self._blob(sha256).unlink()
                self._reserve(-occupied_bytes(n_bytes), -1)

    def _discard(self, path: Path) -> None:
        """Move to the trash immediately; the space is freed later."""
        with suppress(FileNotFoundError):
            path.rename(self._trash / secrets.token_hex(16))

    def _count_used(self) -> tuple[int, int]:
        """The used bytes and files: blobs, and what each tree reserved. Files that jobs add to a
        tree are not counted."""
        blobs = [occupied_bytes(status.st_size) for _, status in _files(self._blobs)]
        trees = [_reserved(path) for path in self._manifests.iterdir()]
        n_bytes = sum(blobs) + sum(n_bytes for n_bytes, _ in trees)
        return n_bytes, len(blobs) + sum(n_files for _, n_files in trees)


def _tree_bytes(manifest: SnapshotManifest) -> int:
    n_empty = 1 + len(manifest.folders) + len(manifest.entries) - len(manifest.files)
    sizes = [each.size_bytes for each in manifest.files]
    return sum(map(occupied_bytes, sizes)) + n_empty * occupied_bytes(0)


def _reserved(manifest: Path) -> tuple[int, int]:
    """The reserved bytes and files. Earlier versions wrote only the bytes."""
    with manifest.open("rb") as file:
        words = file.readline(48).split()
    numbers = [int(word) for word in words if word.isdigit()]
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0) if numbers else (0, 0)


def _touch(path: Path, *, size_bytes: int | None = None) -> bool:
    """Mark a file as used now; returns False if it does not exist or has another size."""
    try:
        status = path.stat()
        if size_bytes is not None and status.st_size != size_bytes:
            return False
        now_s = time.time()
        if status.st_mtime < now_s - TOUCH_INTERVAL_S:
            os.utime(path, (now_s, now_s))
    except FileNotFoundError:
        return False
    return True


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _files(blobs: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder in blobs.iterdir():
        for blob in folder.iterdir():
            yield blob, blob.stat()
