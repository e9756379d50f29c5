"""Copies a store while it is in use."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from rota.errors import UserError
from rota.store.connect import (
    READ_ONLY,
    READ_WRITE,
    connect,
    require_ours,
    require_whole,
    sync_folder,
)
from rota.store.faults import faults

BUSY_S = 5.0


def backup(path: Path, target: Path, *, overwrite: bool = False) -> int:
    """Writes a copy as of now and returns its size. The target appears when it is complete, and
    what it replaces stays until then."""
    if target.exists():
        if target.samefile(path):
            raise UserError(f"{target} is the store itself", "name another file")
        if not overwrite:
            raise UserError(f"{target} exists", "name another file, or overwrite it with --force")
    draft = target.with_name(f"{target.name}.part")
    with faults(path), closing(connect(path, READ_ONLY, busy_s=BUSY_S)) as source:
        require_ours(source, path)
        try:
            with faults(target):
                draft.unlink(missing_ok=True)
                os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                with closing(connect(draft, READ_WRITE, busy_s=BUSY_S)) as copy:
                    source.backup(copy)
                    # Without a log of its own, the copy is one file.
                    copy.execute("PRAGMA journal_mode = DELETE")
                    require_whole(copy, path)
                _sync(draft)
                draft.replace(target)
                sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)
    return target.stat().st_size


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
