"""Opens SQLite database files, and checks that a file is a database of rota."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from rota.errors import StoreError, StoreErrorKind
from rota.store.sqlite.errors import damaged, missing, read_only

APPLICATION_ID = 0x726F7461
"""'rota' in ASCII. SQLite stores it in the file; it identifies a database of rota."""
MIN_SQLITE = (3, 37, 0)
"""The first version with strict tables."""
READ_WRITE, READ_ONLY = "rw", "ro"


def connect(path: Path, mode: str, *, busy_s: float) -> sqlite3.Connection:
    """Connect to an existing file. The caller begins and commits transactions explicitly."""
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        needed = ".".join(map(str, MIN_SQLITE))
        raise StoreError(
            StoreErrorKind.IO,
            f"SQLite {sqlite3.sqlite_version} is too old",
            f"use a Python built with SQLite {needed} or newer",
        )
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )
    # SQLite turns foreign keys off for every new connection.
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def require_writable(path: Path) -> None:
    """Raise if the file or its directory is read-only.

    SQLite would only report that it cannot open a file.
    """
    for each in (path.parent, path):
        if not os.access(each, os.W_OK):
            raise read_only(path)


def make_durable(connection: sqlite3.Connection) -> None:
    """Make every commit return only after the write-ahead log is synced to disk."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    # SQLite accepts a file of 0 bytes as an empty database. A database of rota is never empty,
    # because `migrate.create` builds it under another name first.
    if path.stat().st_size == 0:
        raise StoreError(
            StoreErrorKind.DAMAGED,
            f"{path}: the file is empty",
            "restore a backup, or delete the file to start with a new store",
        )
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    if found != APPLICATION_ID:
        raise StoreError(
            StoreErrorKind.FOREIGN,
            f"{path}: the file is a database of another program",
            "choose another file, or move this one away",
        )


def require_whole(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, str(found))


def sync_directory(directory: Path) -> None:
    """Make a new or renamed file in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def wal_path(path: Path) -> Path:
    """The write-ahead log of a database file."""
    return path.with_name(f"{path.name}-wal")


@dataclass(frozen=True, slots=True)
class DatabaseFileIdentity:
    """The inodes of the open database and its log.

    SQLite keeps writing to a deleted file without an error. Comparing inodes detects this case.
    """

    path: Path
    inodes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, path: Path) -> DatabaseFileIdentity:
        return cls(path, _inodes(path))

    def require(self) -> None:
        if _inodes(self.path) != self.inodes:
            raise missing(self.path)


def _inodes(path: Path) -> tuple[tuple[int, int], ...]:
    try:
        found = [os.stat(path), os.stat(wal_path(path))]  # noqa: PTH116 - runs twice per commit
    except FileNotFoundError:
        return ()
    return tuple((each.st_dev, each.st_ino) for each in found)
