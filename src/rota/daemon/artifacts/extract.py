"""Unpacks a snapshot: creates the folder tree of a manifest from stored blobs.

The tree is created inside a folder that only the daemon can enter, so that no other process can
change it meanwhile. Every folder is opened relative to its open parent and never through a symbolic
link; links are created last. So even a manifest that was not validated cannot write outside of the
tree.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rota.wire.manifest import ManifestEntry, ManifestFile, ManifestLink, SnapshotManifest

CHUNK_BYTES = 1024 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o700
"""Jobs may add files to the folder that they run in."""
FILE_MODE, PROGRAM_MODE = 0o600, 0o700
"""Every job has its own copy and may change it."""
FICLONE = 0x40049409
"""The ioctl that makes a file share the blocks of another one until either of them changes."""

_E = TypeVar("_E", ManifestFile, ManifestLink)


class DamagedBlobError(Exception):
    """A stored blob is missing, or its content does not match its hash."""

    def __init__(self, sha256: str) -> None:
        super().__init__(sha256)
        self.sha256 = sha256


@dataclass(frozen=True, slots=True)
class FileOwner:
    uid: int
    gid: int


def unpack(
    manifest: SnapshotManifest,
    tree: Path,
    *,
    source: Callable[[str], Path],
    owner: FileOwner | None,
) -> None:
    """Fill the empty folder `tree`. `source` returns the path of the blob with a hash. `owner`
    becomes the owner of the files; only root can set it."""
    with _Writer(tree, owner) as writer:
        for each in _in_order(manifest.files):
            writer.enter(each.path)
            writer.write(each, source(each.sha256))
        for each in _in_order(each for each in manifest.entries if isinstance(each, ManifestLink)):
            writer.enter(each.path)
            writer.link(each)
        # A separate pass, so that the disk can write many files at once.
        for each in _in_order(manifest.files):
            writer.enter(each.path)
            writer.sync(each)
        writer.sync_folders()


def _in_order(entries: Iterable[_E]) -> list[_E]:
    """Sorted by folder, so that each folder is entered once."""
    return sorted(entries, key=lambda each: each.path.split("/")[:-1])


class _Writer:
    """Writes into one folder of the tree at a time; keeps the folders above it open."""

    def __init__(self, tree: Path, owner: FileOwner | None) -> None:
        self._owner = owner
        self._names: list[str] = []
        self._fds = [os.open(tree, _FOLDER_FLAGS)]
        self._created: set[tuple[str, ...]] = set()

    def __enter__(self) -> _Writer:
        self._set_owner(self._fds[0], FOLDER_MODE)
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def enter(self, path: str) -> None:
        """Open the folder that holds this path; create it if it does not exist."""
        names = path.split("/")[:-1]
        while names[: len(self._names)] != self._names:
            self._names.pop()
            os.close(self._fds.pop())
        for name in names[len(self._names) :]:
            self._enter_child(name)

    def write(self, file: ManifestFile, source: Path) -> None:
        fd = os.open(_name(file), _FILE_FLAGS, 0o600, dir_fd=self._fds[-1])
        with os.fdopen(fd, "wb") as copy:
            write = _ignore if _is_cloned(source, fd) else copy.write
            _copy(source, write, sha256=file.sha256)
            self._set_owner(fd, PROGRAM_MODE if file.is_executable else FILE_MODE)

    def link(self, link: ManifestLink) -> None:
        os.symlink(link.target, _name(link), dir_fd=self._fds[-1])
        if self._owner is not None:
            uid, gid = self._owner.uid, self._owner.gid
            os.chown(_name(link), uid, gid, dir_fd=self._fds[-1], follow_symlinks=False)

    def sync(self, file: ManifestFile) -> None:
        fd = os.open(_name(file), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fds[-1])
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_folders(self) -> None:
        os.fsync(self._fds[0])
        for names in self._created:
            self.enter("/".join((*names, "")))
            os.fsync(self._fds[-1])

    def _enter_child(self, name: str) -> None:
        parent = self._fds[-1]
        path = (*self._names, name)
        if path not in self._created:
            os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        self._names.append(name)
        self._fds.append(fd)
        if path not in self._created:
            self._created.add(path)
            self._set_owner(fd, FOLDER_MODE)

    def _set_owner(self, fd: int, mode: int) -> None:
        if self._owner is not None:
            os.fchown(fd, self._owner.uid, self._owner.gid)
        os.fchmod(fd, mode)


def _name(entry: ManifestEntry) -> str:
    return entry.path.rpartition("/")[2]


def _is_cloned(source: Path, target: int) -> bool:
    """Try to share the blocks of the source: only some file systems can (Btrfs, XFS)."""
    try:
        with source.open("rb", buffering=0) as content:
            fcntl.ioctl(target, FICLONE, content.fileno())
    except OSError:
        return False
    return True


def _ignore(chunk: bytes) -> None:
    """The content is only checked."""


def _copy(source: Path, write: Callable[[bytes], object], *, sha256: str) -> None:
    hasher = hashlib.sha256()
    try:
        with source.open("rb", buffering=0) as content:
            while chunk := content.read(CHUNK_BYTES):
                hasher.update(chunk)
                write(chunk)
    except FileNotFoundError as error:
        raise DamagedBlobError(sha256) from error
    if hasher.hexdigest() != sha256:
        raise DamagedBlobError(sha256)
