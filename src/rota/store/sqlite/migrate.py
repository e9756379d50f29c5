"""Creates a database, and migrates an existing one to the newest schema in numbered steps."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rota.errors import StoreError, StoreErrorKind
from rota.store.sqlite.connect import (
    APPLICATION_ID,
    READ_WRITE,
    connect,
    make_durable,
    require_ours,
    require_writable,
    sync_directory,
    wal_path,
)
from rota.store.sqlite.errors import as_store_errors
from rota.store.sqlite.sql_loader import Migration, migrations

BUSY_S = 1.0


def newest() -> int:
    return migrations()[-1].version


def version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version


def pending(connection: sqlite3.Connection, path: Path) -> list[Migration]:
    """Return the migrations that the database needs. Raise if a newer rota wrote its schema."""
    version = version_of(connection)
    if version > newest():
        raise StoreError(
            StoreErrorKind.NEWER,
            f"{path}: a newer rota wrote the file (schema {version}, this rota reads {newest()})",
            "upgrade rota, or restore a backup of the older version",
        )
    return [each for each in migrations() if each.version > version]


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration]) -> None:
    """Apply each migration in one transaction, so that a crash never leaves half a migration."""
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
    """Migrate a file. Return its old version and the migrations applied, or needed if `dry`."""
    with as_store_errors(path):
        require_writable(path)
    with as_store_errors(path), closing(connect(path, READ_WRITE, busy_s=BUSY_S)) as connection:
        require_ours(connection, path)
        start, steps = version_of(connection), pending(connection, path)
        if not dry:
            migrate(connection, steps)
    return start, steps


def create(path: Path) -> None:
    """Create a new database, readable by its owner only.

    The database is built under a draft name and renamed when it is complete, so that a crash leaves
    no incomplete file. The mode is 0600 because jobs store environment variables of users.
    """
    if wal_path(path).exists():
        raise StoreError(
            StoreErrorKind.MISSING,
            f"{path}: the file is missing, but its log {wal_path(path).name} exists",
            "put the file back or restore a backup; for a new store, move the log away first",
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
    sync_directory(path.parent)
