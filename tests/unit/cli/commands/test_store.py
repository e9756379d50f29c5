"""`rota store`: check, backup, migrate."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import OPENING, batches
from tests.unit.cli.conftest import Rota


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with a store in it, which needs no `--file`."""
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    store = SqliteStore(tmp_path / "rota.db")
    for batch in batches(OPENING):
        store.write(batch).result()
    store.close()
    return tmp_path


def tamper(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


def test_check_of_a_healthy_store(rota: Rota, home: Path):
    assert rota("store", "check").out == f"{home / 'rota.db'}: no problems found\n"
    assert json.loads(rota("store", "check", "--json").out)["problems"] == []


def test_check_lists_problems(rota: Rota, home: Path):
    tamper(home / "rota.db", "DELETE FROM submissions")
    found = rota("store", "check")
    assert found.code == 1
    assert found.out.splitlines() == [
        "job job-00001: has no submission, so its program is unknown",
        "job job-00002: has no submission, so its program is unknown",
    ]
    assert len(json.loads(rota("store", "check", "--json").out)["problems"]) == 2


def test_check_of_another_file(rota: Rota, home: Path):
    file = home / "notes.txt"
    file.write_text("milk, eggs" * 100)
    found = rota("store", "check", "--file", str(file))
    assert found.code == 1
    assert found.err.startswith(f"rota: {file}: the file is not a database")


def test_check_does_not_suggest_check(rota: Rota, home: Path):
    file = home / "damaged.db"
    content = bytearray((home / "rota.db").read_bytes())
    content[:16] = b"x" * 16
    file.write_bytes(content)
    found = rota("store", "check", "--file", str(file))
    assert found.code == 1
    assert "restore a backup" in found.out + found.err
    assert "store check" not in found.out + found.err


def test_no_store(rota: Rota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    found = rota("store", "check")
    assert found.code == 2
    assert found.err == f"rota: no store at {tmp_path / 'rota.db'}; give its path with --file\n"


def test_backup(rota: Rota, home: Path):
    target = str(home / "copy.db")
    assert rota("store", "backup", target).out.startswith(f"{home / 'rota.db'}: copied to {target}")
    again = rota("store", "backup", target)
    assert again.code == 2
    assert "--force" in again.err
    assert rota("store", "backup", target, "--force").code == 0
    assert rota("store", "check", "--file", target).code == 0


def test_migrate(rota: Rota, home: Path):
    assert rota("store", "migrate").out == f"{home / 'rota.db'}: schema 5 is current\n"


STEPS = (
    "  0001 initial\n  0002 samples\n  0003 worker starts\n  0004 retention\n"
    "  0005 common programs\n"
)


def test_migrate_lists_its_steps(rota: Rota, home: Path):
    path = home / "rota.db"
    path.unlink()
    tamper(path, "PRAGMA application_id = 0x726F7461")
    tamper(path, "VACUUM")
    dry = rota("store", "migrate", "--dry-run").out
    assert dry == f"{path}: would migrate from schema 0 to 5\n{STEPS}"
    assert rota("store", "check").out == "schema version 1 is missing; run 'rota store migrate'\n"
    assert rota("store", "migrate").out == f"{path}: migrated from schema 0 to 5\n{STEPS}"
    assert rota("store", "check").code == 0


def test_migrate_refuses_a_newer_schema(rota: Rota, home: Path):
    tamper(home / "rota.db", "PRAGMA user_version = 99")
    found = rota("store", "migrate")
    assert found.code == 1
    assert "schema 99, this rota reads 5); upgrade rota" in found.err
