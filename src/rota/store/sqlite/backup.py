"""Copies a database file while a daemon uses it."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from rota.errors import UserError
from rota.store.sqlite.connect import (
    READ_ONLY,
    READ_WRITE,
    connect,
    require_ours,
    require_whole,
    sync_directory,
)
from rota.store.sqlite.errors import as_store_errors

BUSY_S = 5.0


def backup(path: Path, target: Path, *, overwrite: bool = False) -> int:
    """Write a consistent copy of the database to `target`, and return its size in bytes.

    The copy is written to a draft file and renamed when it is complete: a failed backup leaves an
    existing target unchanged.
    """
    if target.exists():
        if target.samefile(path):
            raise UserError(f"{target} is the store itself", "choose another target file")
        if not overwrite:
            raise UserError(
                f"{target} already exists", "choose another target file, or pass --force"
            )
    draft = target.with_name(f"{target.name}.part")
    with as_store_errors(path), closing(connect(path, READ_ONLY, busy_s=BUSY_S)) as source:
        require_ours(source, path)
        try:
            with as_store_errors(target):
                draft.unlink(missing_ok=True)
                os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                with closing(connect(draft, READ_WRITE, busy_s=BUSY_S)) as copy:
                    source.backup(copy)
                    # Without a write-ahead log, the copy is a single file.
                    copy.execute("PRAGMA journal_mode = DELETE")
                    require_whole(copy, path)
                _sync(draft)
                draft.replace(target)
                sync_directory(target.parent)
        finally:
            draft.unlink(missing_ok=True)
    return target.stat().st_size


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
