"""Says in words what SQLite says in codes."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import StoreError, Trouble
from rota.store.codec import CodecError

REFUSALS = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeEncodeError,
)
"""The batch is at fault, not the file: any other batch may be written."""

_PRIMARY = 0xFF
"""SQLite's extended codes have their primary code in the lowest byte."""

RESTORE = "stop rota and restore a backup"
_DAMAGED = f"{RESTORE}; 'rota store check' lists the damage"
_READ_ONLY = (
    Trouble.READ_ONLY,
    "it, or its folder, cannot be written",
    "check owner and mode, and how the disk is mounted",
)
_WORDS: dict[int, tuple[Trouble, str, str]] = {
    sqlite3.SQLITE_FULL: (
        Trouble.FULL,
        "no space left to write in",
        "make room on its disk; rota goes on by itself",
    ),
    sqlite3.SQLITE_BUSY: (
        Trouble.LOCKED,
        "another program holds a lock on it",
        "end that program; 'fuser' names it",
    ),
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: (
        Trouble.MISSING,
        "it cannot be opened",
        "check that it and its folder exist, and their owner and mode",
    ),
    sqlite3.SQLITE_CORRUPT: (Trouble.DAMAGED, "it is damaged", _DAMAGED),
    sqlite3.SQLITE_NOTADB: (Trouble.DAMAGED, "it is not a database, or no longer one", _DAMAGED),
    sqlite3.SQLITE_IOERR: (
        Trouble.IO,
        "its disk refuses to read or write",
        "look at the disk and the system's log, at quotas, and at 'ulimit -f'",
    ),
}
_WORDS[sqlite3.SQLITE_LOCKED] = _WORDS[sqlite3.SQLITE_BUSY]


@contextmanager
def faults(path: Path) -> Generator[None]:
    """Whatever goes wrong with the file inside the block comes out as a `StoreError`."""
    try:
        yield
    except (sqlite3.Error, OSError, CodecError, *REFUSALS) as error:
        raise explained(error, path) from error


def explained(error: Exception, path: Path) -> StoreError:
    match error:
        case StoreError():
            return error
        case CodecError():
            return damaged(path, str(error))
        case OSError():
            reason = (error.strerror or str(error)).lower()
            return StoreError(Trouble.IO, f"{path}: {reason}", "check its folder")
        case sqlite3.Error() if not isinstance(error, REFUSALS):
            return _translated(error, path)
        case _:
            message = f"{path}: a row was refused: {error}"
            return StoreError(Trouble.REFUSED, message, "this is a bug in rota, please report it")


def _translated(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    # A file that was replaced or removed counts as read-only for SQLite.
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return missing(path)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    trouble, words, hint = _WORDS.get(
        code & _PRIMARY, (Trouble.IO, f"{error}", "run 'rota store check'")
    )
    return StoreError(trouble, f"{path}: {words} ({name})", hint)


def read_only(path: Path) -> StoreError:
    trouble, words, hint = _READ_ONLY
    return StoreError(trouble, f"{path}: {words}", hint)


def damaged(path: Path, what: str) -> StoreError:
    return StoreError(Trouble.DAMAGED, f"{path}: it is damaged: {what}", _DAMAGED)


def missing(path: Path) -> StoreError:
    """The file is not where it was. What is written now would go with it."""
    return StoreError(
        Trouble.MISSING,
        f"{path}: it was removed or replaced while rota used it",
        "put the same file back, or stop rota and restore a backup",
    )
