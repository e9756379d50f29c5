"""Opens database files, for one writer and for readers."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from rota.errors import StoreError, Trouble
from rota.store.faults import damaged, missing, read_only

APPLICATION_ID = 0x726F7461
"""'rota' in ASCII: tells our files from anybody else's."""
OLDEST_SQLITE = (3, 37, 0)
"""The first that knows strict tables."""
READ_WRITE, READ_ONLY = "rw", "ro"


def connect(path: Path, mode: str, *, busy_s: float) -> sqlite3.Connection:
    """A connection without transactions of its own, to a file that exists."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(
            Trouble.IO,
            f"SQLite {sqlite3.sqlite_version} is too old",
            f"use a Python that was built with SQLite {needed} or newer",
        )
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )
    # On until it is told otherwise, and off again for every new connection.
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def require_writable(path: Path) -> None:
    """SQLite would say of a read-only disk only that it cannot open something."""
    for place in (path.parent, path):
        if not os.access(place, os.W_OK):
            raise read_only(path)


def make_durable(connection: sqlite3.Connection) -> None:
    """A commit returns after its log is on the disk."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    # A file that was cut to nothing passes for an empty database: ours is never empty, because it
    # is made under another name first.
    if path.stat().st_size == 0:
        raise StoreError(
            Trouble.DAMAGED, f"{path}: it is empty", "restore a backup, or remove it to start anew"
        )
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    if found != APPLICATION_ID:
        raise StoreError(
            Trouble.FOREIGN,
            f"{path}: a database, but not one of rota's",
            "name another file, or move this one away",
        )


def require_whole(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, str(found))


def sync_folder(folder: Path) -> None:
    """Makes names in a folder last: a new file, or a rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def log_of(path: Path) -> Path:
    """The file that SQLite writes first."""
    return path.with_name(f"{path.name}-wal")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which files a connection writes to. SQLite goes on happily in a file that was removed."""

    path: Path
    inodes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, path: Path) -> Identity:
        return cls(path, _inodes(path))

    def require(self) -> None:
        if _inodes(self.path) != self.inodes:
            raise missing(self.path)


def _inodes(path: Path) -> tuple[tuple[int, int], ...]:
    try:
        found = [os.stat(path), os.stat(log_of(path))]  # noqa: PTH116 - twice in every commit
    except FileNotFoundError:
        return ()
    return tuple((each.st_dev, each.st_ino) for each in found)
