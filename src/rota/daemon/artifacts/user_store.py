"""What one user has shipped, on disk. Nothing of it is shared with another user's.

    blobs/ab/abcd...   contents, by their hash
    manifests/ID       a line with what the snapshot takes at most, then its manifest
    trees/ID           an unpacked snapshot; its owner's, all else is the daemon's
    drafts/, trash/    what is not there yet, and no longer; emptied at every start

Whatever is in the first three is whole: it gets there by a rename.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rota.daemon.disk import empty, faults, make_folder, occupied_bytes, sync
from rota.daemon.unpacking import DamagedError, Owner, unpack
from rota.errors import InputError, UnavailableError, UserError
from rota.wire.manifest import Manifest

SHIP_AGAIN = "ship the folder again"


MARK_S = 300.0
"""A mark of use is not renewed sooner: thousands of them at every submit would cost seconds."""
DRAFTS, TRASH = "drafts", "trash"


def clean(folder: Path) -> None:
    """Remove what a crash left behind, before the first use of a shelf."""
    for each in (folder / DRAFTS, folder / TRASH):
        with faults(each), suppress(FileNotFoundError):
            empty(each)


class Shelf:
    """Safe to be used by many threads. Two locks, always taken in this order: `_unpacking` for the
    trees, which may take long, and `_lock` for all else."""

    def __init__(self, folder: Path, *, quota_bytes: int) -> None:
        self.folder = folder
        self._blobs = folder / "blobs"
        self._manifests = folder / "manifests"
        self._trees = folder / "trees"
        self._drafts = folder / DRAFTS
        self._trash = folder / TRASH
        self._quota_bytes = quota_bytes
        self._unpacking = threading.Lock()
        self._lock = threading.Lock()
        with faults(folder):
            # The owner passes through to the trees, and can list nothing on the way.
            for path in (folder, self._trees):
                make_folder(path, 0o711)
            for path in (self._blobs, self._manifests, self._drafts, self._trash):
                make_folder(path, 0o700)
            self._used_bytes = self._count_used()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    # -- contents -------------------------------------------------------------------------------

    def missing(self, manifest: Manifest) -> list[str]:
        with self._lock, faults(self.folder):
            return self._missing(manifest)

    def _missing(self, manifest: Manifest) -> list[str]:
        """What is there is marked as used now, so that it is not pruned before the job comes."""
        return [
            sha256
            for sha256, size_bytes in manifest.blobs.items()
            if not _touch(self._blob(sha256), size_bytes=size_bytes)
        ]

    def draft(self) -> Path:
        """Where something may be written, and from where it is put in its place."""
        return self._drafts / secrets.token_hex(16)

    def put_blob(self, sha256: str, draft: Path) -> None:
        """Keep a checked content, whose space is reserved already."""
        place = self._blob(sha256)
        with self._lock, faults(self.folder):
            make_folder(place.parent, 0o700)
            replaced_bytes = _size(place)
            draft.rename(place)
            if replaced_bytes is not None:
                self._used_bytes -= occupied_bytes(replaced_bytes)

    def reserve(self, n_bytes: int) -> None:
        with self._lock:
            self._reserve(n_bytes)

    def _reserve(self, n_bytes: int) -> None:
        """Negative to give back."""
        if n_bytes > 0 and self._used_bytes + n_bytes > self._quota_bytes:
            quota = f"{self._quota_bytes:,} bytes"
            message = f"your shipped folders take more than the {quota} that a user may use"
            hint = (
                "ship less, by lines in .rotaignore; those whose jobs have ended go by themselves"
            )
            raise UserError(message, hint)
        self._used_bytes += n_bytes

    def _blob(self, sha256: str) -> Path:
        return self._blobs / sha256[:2] / sha256

    # -- snapshots ------------------------------------------------------------------------------

    def has(self, snapshot_id: str) -> bool:
        """Marks it as used now: a job that names it is about to come."""
        with faults(self.folder):
            return _touch(self._manifests / snapshot_id)

    def manifest(self, snapshot_id: str) -> Manifest:
        with self._lock, faults(self.folder):
            if not _touch(self._manifests / snapshot_id):
                raise UserError(f"there is no snapshot {snapshot_id!r}", SHIP_AGAIN)
            return self._load(snapshot_id)

    def open(self, sha256: str) -> BinaryIO:
        """A content, to be read; it stays readable, even if it is pruned meanwhile."""
        with faults(self.folder):
            try:
                return self._blob(sha256).open("rb", buffering=0)
            except FileNotFoundError:
                raise UserError(f"there is no content {sha256!r}", SHIP_AGAIN) from None

    def finish(self, manifest: Manifest) -> str:
        text, snapshot_id = manifest.to_json(), manifest.snapshot_id
        with self._lock, faults(self.folder):
            if lacking := self._missing(manifest):
                message = f"{len(lacking):,} of the folder's contents have not been sent"
                raise UserError(message, SHIP_AGAIN)
            place = self._manifests / snapshot_id
            if _touch(place):
                sync(place.parent)
                return snapshot_id
            for folder in {self._blob(sha256).parent for sha256 in manifest.blobs}:
                sync(folder)
            sync(self._blobs)
            n_bytes = _tree_bytes(manifest) + occupied_bytes(len(text))
            self._reserve(n_bytes)
            try:
                self._write(place, f"{n_bytes}\n".encode() + text)
            except OSError:
                place.unlink(missing_ok=True)
                self._reserve(-n_bytes)
                raise
        return snapshot_id

    def _write(self, place: Path, content: bytes) -> None:
        draft = self.draft()
        try:
            draft.write_bytes(content)
            sync(draft)
            draft.rename(place)
        finally:
            draft.unlink(missing_ok=True)
        sync(place.parent)

    def unpack(self, snapshot_id: str, owner: Owner | None) -> Path:
        """The folder of a snapshot. Made by the first who asks; the others wait for it."""
        tree = self._trees / snapshot_id
        with self._unpacking, faults(self.folder):
            if not _touch(self._manifests / snapshot_id):
                raise UserError(f"there is no snapshot {snapshot_id!r}", SHIP_AGAIN)
            if tree.exists():
                return tree
            draft = self.draft()
            try:
                draft.mkdir(mode=0o700)
                unpack(self._load(snapshot_id), draft, source=self._blob, owner=owner)
                self._put_tree(draft, tree)
            except DamagedError as error:
                self._drop_blob(error.sha256)
                message = f"a content of snapshot {snapshot_id!r} is damaged or gone"
                raise UnavailableError(message, SHIP_AGAIN) from error
            finally:
                if draft.exists():
                    self._discard(draft)
                    empty(self._trash)
        return tree

    def _put_tree(self, draft: Path, tree: Path) -> None:
        try:
            draft.rename(tree)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync(self._trees)

    def _load(self, snapshot_id: str) -> Manifest:
        _, _, text = (self._manifests / snapshot_id).read_bytes().partition(b"\n")
        try:
            manifest = Manifest.of_json(text)
        except InputError as error:
            raise self._damaged(snapshot_id) from error
        if manifest.snapshot_id != snapshot_id:
            raise self._damaged(snapshot_id)
        return manifest

    def _damaged(self, snapshot_id: str) -> UnavailableError:
        return UnavailableError(f"{self._manifests / snapshot_id}: it is damaged", SHIP_AGAIN)

    # -- room -----------------------------------------------------------------------------------

    def prune(self, keep: Collection[str], *, before_s: float) -> int:
        """Remove what no kept snapshot needs and nobody used since; the bytes that it took."""
        with self._unpacking, faults(self.folder):
            with self._lock:
                before_bytes = self._used_bytes
                for place in self._manifests.iterdir():
                    if place.name not in keep and place.stat().st_mtime <= before_s:
                        self._drop_snapshot(place)
                self._prune_blobs(before_s)
                freed_bytes = before_bytes - self._used_bytes
            empty(self._trash)
        return freed_bytes

    def _drop_snapshot(self, place: Path) -> None:
        """The tree goes first: one without its manifest would never be found again."""
        n_bytes = _reserved(place)
        self._discard(self._trees / place.name)
        place.unlink()
        self._used_bytes -= n_bytes

    def _prune_blobs(self, before_s: float) -> None:
        needed = {
            sha256 for place in self._manifests.iterdir() for sha256 in self._load(place.name).blobs
        }
        for blob, status in _files(self._blobs):
            if blob.name not in needed and status.st_mtime <= before_s:
                blob.unlink()
                self._used_bytes -= occupied_bytes(status.st_size)

    def _drop_blob(self, sha256: str) -> None:
        with self._lock:
            n_bytes = _size(self._blob(sha256))
            if n_bytes is not None:
                self._blob(sha256).unlink()
                self._used_bytes -= occupied_bytes(n_bytes)

    def _discard(self, path: Path) -> None:
        """Gone at once; its space follows."""
        with suppress(FileNotFoundError):
            path.rename(self._trash / secrets.token_hex(16))

    def _count_used(self) -> int:
        """By what trees take when they are unpacked: what jobs add to them is not counted."""
        blobs = sum(occupied_bytes(status.st_size) for _, status in _files(self._blobs))
        return blobs + sum(_reserved(place) for place in self._manifests.iterdir())


def _tree_bytes(manifest: Manifest) -> int:
    n_empty = 1 + len(manifest.folders) + len(manifest.entries) - len(manifest.files)
    sizes = [each.size_bytes for each in manifest.files]
    return sum(map(occupied_bytes, sizes)) + n_empty * occupied_bytes(0)


def _reserved(place: Path) -> int:
    with place.open("rb") as file:
        line = file.readline(32)
    return int(line) if line.strip().isdigit() else 0


def _touch(path: Path, *, size_bytes: int | None = None) -> bool:
    """Mark a file as used now; false if it is not there, or not of this size."""
    try:
        status = path.stat()
        if size_bytes is not None and status.st_size != size_bytes:
            return False
        now_s = time.time()
        if status.st_mtime < now_s - MARK_S:
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
