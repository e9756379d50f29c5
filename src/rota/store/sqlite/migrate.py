"""Brings a database to the newest schema, one numbered step after the other."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rota.errors import StoreError, Trouble
from rota.store.connect import (
    APPLICATION_ID,
    READ_WRITE,
    connect,
    log_of,
    make_durable,
    require_ours,
    require_writable,
    sync_folder,
)
from rota.store.faults import faults
from rota.store.queries import Migration, migrations

BUSY_S = 1.0


def newest() -> int:
    return migrations()[-1].version


def version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version


def pending(connection: sqlite3.Connection, path: Path) -> list[Migration]:
    """The steps that are still to be taken. Refuses a database from the future."""
    version = version_of(connection)
    if version > newest():
        raise StoreError(
            Trouble.NEWER,
            f"{path}: written by a newer rota (schema {version}, this one knows {newest()})",
            "upgrade rota, or restore a backup from before",
        )
    return [each for each in migrations() if each.version > version]


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration]) -> None:
    """Each step is one transaction: a database is always at some version, never between two."""
    for step in steps:
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{step.sql}\nPRAGMA user_version = {step.version};\nCOMMIT;"
            )
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def migrate_file(path: Path, *, dry: bool = False) -> tuple[int, list[Migration]]:
    """The version that a file had, and the steps that it took, or would take."""
    with faults(path):
        require_writable(path)
    with faults(path), closing(connect(path, READ_WRITE, busy_s=BUSY_S)) as connection:
        require_ours(connection, path)
        start, steps = version_of(connection), pending(connection, path)
        if not dry:
            migrate(connection, steps)
    return start, steps


def create(path: Path) -> None:
    """A new database. It gets its name when it is complete, so that a crash leaves none or all;
    it may hold people's environments, so nobody else may read it."""
    if log_of(path).exists():
        raise StoreError(
            Trouble.MISSING,
            f"{path}: it is gone, but its log {log_of(path).name} is there",
            "put the file back or restore a backup; to start anew, move the log away",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(connect(draft, READ_WRITE, busy_s=0)) as connection:
        make_durable(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrate(connection, migrations())
    draft.rename(path)
    sync_folder(path.parent)
