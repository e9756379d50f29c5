"""Unpacks a snapshot: makes the folder that a manifest describes, from contents in files.

It is made inside a folder that nobody but the daemon can enter, so that nobody can change it
underway. Every folder is opened by its name in an open one, and never through a link; links come
last. So even a manifest that was not checked could write nothing outside.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rota.wire.manifest import Entry, File, Link, Manifest

CHUNK_BYTES = 1024 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o700
"""A job may add to the folder that it runs in, and leave compiled modules there."""
FILE_MODE, PROGRAM_MODE = 0o400, 0o500
"""What was shipped stays as it was, as long as nobody insists."""


_E = TypeVar("_E", File, Link)


class DamagedError(Exception):
    """A kept content is gone, or does not have its hash any more."""

    def __init__(self, sha256: str) -> None:
        super().__init__(sha256)
        self.sha256 = sha256


@dataclass(frozen=True, slots=True)
class Owner:
    uid: int
    gid: int


def unpack(
    manifest: Manifest, tree: Path, *, source: Callable[[str], Path], owner: Owner | None
) -> None:
    """Fill an empty folder. `source` says where the content of a hash is; only root can give the
    tree to an owner."""
    with _Writer(tree, owner) as writer:
        for each in _in_order(manifest.files):
            writer.enter(each.path)
            writer.write(each, source(each.sha256))
        for each in _in_order(each for each in manifest.entries if isinstance(each, Link)):
            writer.enter(each.path)
            writer.link(each)
        # In a pass of its own, because the disk then writes many files at once.
        for each in _in_order(manifest.files):
            writer.enter(each.path)
            writer.sync(each)
        writer.sync_folders()


def _in_order(entries: Iterable[_E]) -> list[_E]:
    """Folder by folder, each with its own folders, so that each is entered once."""
    return sorted(entries, key=lambda each: each.path.split("/")[:-1])


class _Writer:
    """Stands in one folder of the tree at a time, with those above it open."""

    def __init__(self, tree: Path, owner: Owner | None) -> None:
        self._owner = owner
        self._names: list[str] = []
        self._fds = [os.open(tree, _FOLDER_FLAGS)]
        self._made: set[tuple[str, ...]] = set()

    def __enter__(self) -> _Writer:
        self._own(self._fds[0], FOLDER_MODE)
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def enter(self, path: str) -> None:
        """Stand in the folder of this path; make it if it is not there."""
        names = path.split("/")[:-1]
        while names[: len(self._names)] != self._names:
            self._names.pop()
            os.close(self._fds.pop())
        for name in names[len(self._names) :]:
            self._step(name)

    def write(self, file: File, source: Path) -> None:
        fd = os.open(_name(file), _FILE_FLAGS, 0o600, dir_fd=self._fds[-1])
        with os.fdopen(fd, "wb") as copy:
            _copy(source, copy.write, sha256=file.sha256)
            self._own(fd, PROGRAM_MODE if file.is_executable else FILE_MODE)

    def link(self, link: Link) -> None:
        os.symlink(link.target, _name(link), dir_fd=self._fds[-1])
        if self._owner is not None:
            uid, gid = self._owner.uid, self._owner.gid
            os.chown(_name(link), uid, gid, dir_fd=self._fds[-1], follow_symlinks=False)

    def sync(self, file: File) -> None:
        fd = os.open(_name(file), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fds[-1])
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_folders(self) -> None:
        os.fsync(self._fds[0])
        for names in self._made:
            self.enter("/".join((*names, "")))
            os.fsync(self._fds[-1])

    def _step(self, name: str) -> None:
        parent = self._fds[-1]
        place = (*self._names, name)
        if place not in self._made:
            os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        self._names.append(name)
        self._fds.append(fd)
        if place not in self._made:
            self._made.add(place)
            self._own(fd, FOLDER_MODE)

    def _own(self, fd: int, mode: int) -> None:
        if self._owner is not None:
            os.fchown(fd, self._owner.uid, self._owner.gid)
        os.fchmod(fd, mode)


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def _copy(source: Path, write: Callable[[bytes], object], *, sha256: str) -> None:
    hasher = hashlib.sha256()
    try:
        with source.open("rb", buffering=0) as content:
            while chunk := content.read(CHUNK_BYTES):
                hasher.update(chunk)
                write(chunk)
    except FileNotFoundError as error:
        raise DamagedError(sha256) from error
    if hasher.hexdigest() != sha256:
        raise DamagedError(sha256)
