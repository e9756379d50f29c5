"""Translates errors of SQLite and of the file system to `StoreError`."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import StoreError, StoreErrorKind, internal_error_message
from rota.store.codec import CodecError

ROW_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeEncodeError,
)
"""Errors that the batch causes, not the file: other batches can still be written."""

_PRIMARY = 0xFF
"""The lowest byte of an extended SQLite error code is the primary code."""

RESTORE = "stop rota and restore a backup"
_DAMAGED = f"{RESTORE}; 'rota store check' lists the damage"
_READ_ONLY = (
    StoreErrorKind.READ_ONLY,
    "the file or its directory is not writable",
    "check the owner, the mode and the mount options",
)
_BY_CODE: dict[int, tuple[StoreErrorKind, str, str]] = {
    sqlite3.SQLITE_FULL: (
        StoreErrorKind.FULL,
        "no space left on the disk",
        "free some space; rota then continues by itself",
    ),
    sqlite3.SQLITE_BUSY: (
        StoreErrorKind.LOCKED,
        "another program has locked the file",
        "stop that program; 'fuser' shows its process id",
    ),
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: (
        StoreErrorKind.MISSING,
        "the file cannot be opened",
        "check that the file and its directory exist, and their owner and mode",
    ),
    sqlite3.SQLITE_CORRUPT: (StoreErrorKind.DAMAGED, "the file is damaged", _DAMAGED),
    sqlite3.SQLITE_NOTADB: (
        StoreErrorKind.DAMAGED,
        "the file is not a database",
        _DAMAGED,
    ),
    sqlite3.SQLITE_IOERR: (
        StoreErrorKind.IO,
        "the disk failed to read or write",
        "check the disk, the system log, disk quotas and 'ulimit -f'",
    ),
}
_BY_CODE[sqlite3.SQLITE_LOCKED] = _BY_CODE[sqlite3.SQLITE_BUSY]


@contextmanager
def as_store_errors(path: Path) -> Generator[None]:
    """Raise every error of the database inside the block as a `StoreError`."""
    try:
        yield
    except (sqlite3.Error, OSError, CodecError, *ROW_ERRORS) as error:
        raise to_store_error(error, path) from error


def to_store_error(error: Exception, path: Path) -> StoreError:
    match error:
        case StoreError():
            return error
        case CodecError():
            return damaged(path, str(error))
        case OSError():
            reason = (error.strerror or str(error)).lower()
            return StoreError(StoreErrorKind.IO, f"{path}: {reason}", "check the directory")
        case sqlite3.Error() if not isinstance(error, ROW_ERRORS):
            return _from_sqlite_error(error, path)
        case _:
            return refused(path, error)


def _from_sqlite_error(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    # SQLite reports a replaced or deleted file as read-only.
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return missing(path)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    kind, message, hint = _BY_CODE.get(
        code & _PRIMARY, (StoreErrorKind.IO, f"{error}", "run 'rota store check'")
    )
    return StoreError(kind, f"{path}: {message} ({name})", hint)


def refused(path: Path, error: Exception) -> StoreError:
    """A value of the batch cannot be stored. Other batches can."""
    message = f"{path}: the database rejected a row: {internal_error_message(error)}"
    return StoreError(StoreErrorKind.REFUSED, message, "this is a bug in rota; please report it")


def read_only(path: Path) -> StoreError:
    kind, message, hint = _READ_ONLY
    return StoreError(kind, f"{path}: {message}", hint)


def damaged(path: Path, detail: str) -> StoreError:
    return StoreError(StoreErrorKind.DAMAGED, f"{path}: the file is damaged: {detail}", _DAMAGED)


def missing(path: Path) -> StoreError:
    """The open file no longer has its path. Data written to the open file would be lost."""
    return StoreError(
        StoreErrorKind.MISSING,
        f"{path}: the file was deleted or replaced while rota used it",
        "put the same file back, or stop rota and restore a backup",
    )


def closed(path: Path) -> StoreError:
    return StoreError(StoreErrorKind.CLOSED, f"{path}: the store is closed")
