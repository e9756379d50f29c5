"""A backup is complete, private to its owner, and replaces no file by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.errors import StoreError, StoreErrorKind, UserError
from rota.store.sqlite.backup import backup
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.integration.store.test_damage import garbage_in_a_page
from tests.support.store_workload import StoreWorkload


def test_backup_of_a_store_in_use_is_complete(store: SqliteStore, path: Path, tmp_path: Path):
    life, target = StoreWorkload(), tmp_path / "copy.db"
    store.write(life.submit(1, 0)).result()
    backup(path, target)
    store.write(life.submit(2, 0)).result()
    assert check(target) == []
    assert target.stat().st_mode & 0o077 == 0
    copy = SqliteStore(target)
    assert copy.load().jobs == store.load().jobs[:1]
    copy.close()
    assert not list(tmp_path.glob("*.part*"))


def test_an_older_backup_stays_unless_forced(filled: Path, tmp_path: Path):
    target = tmp_path / "copy.db"
    target.write_text("older")
    with pytest.raises(UserError, match=r"already exists; .*--force"):
        backup(filled, target)
    assert target.read_text() == "older"
    backup(filled, target, overwrite=True)
    assert check(target) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_backup_refuses_the_store_as_target(filled: Path, overwrite: bool):
    with pytest.raises(UserError, match="is the store itself"):
        backup(filled, filled, overwrite=overwrite)
    assert check(filled) == []


def test_damage_does_not_replace_an_older_backup(filled: Path, tmp_path: Path):
    target = tmp_path / "copy.db"
    target.write_text("older")
    filled.write_bytes(garbage_in_a_page(filled.read_bytes()))
    with pytest.raises(StoreError) as caught:
        backup(filled, target, overwrite=True)
    assert caught.value.kind is StoreErrorKind.DAMAGED
    assert target.read_text() == "older"
    assert not list(tmp_path.glob("*.part*"))


def test_backup_into_a_missing_directory_fails(filled: Path, tmp_path: Path):
    with pytest.raises(StoreError, match="no such file or directory"):
        backup(filled, tmp_path / "nowhere" / "copy.db")
