"""The SQL files match the schema and the source code."""

from __future__ import annotations

import re
import sqlite3

import pytest

from rota.store.sqlite.sql_loader import migrations, queries
from tests.tidy.tree import SOURCE


@pytest.fixture
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for step in migrations():
        connection.executescript(step.sql)
    return connection


@pytest.mark.parametrize("name", queries())
def test_every_query_fits_the_schema(database: sqlite3.Connection, name: str):
    sql = queries()[name]
    n_values = sql.count("?")
    named = dict.fromkeys(re.findall(r":(\w+)", sql))
    database.execute(f"EXPLAIN {sql}", named or [None] * n_values)


def test_every_query_is_used():
    source = "".join(path.read_text() for path in (SOURCE / "store").rglob("*.py"))
    unused = [name for name in queries() if f'"{name}"' not in source]
    assert not unused


def test_migrations_are_numbered_without_a_gap():
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_start_reads_jobs_by_their_state(database: sqlite3.Connection):
    assert any("jobs_by_state" in step for step in plan_of(database, "live_jobs"))


def test_a_lookup_by_word_scans_no_table_for_names(database: sqlite3.Connection):
    plan = plan_of(database, "jobs_by_word")
    assert [step for step in plan if step.startswith("SCAN jobs") and "COVERING" not in step] == []
    for index in ("jobs_by_name", "sqlite_autoindex_jobs_1", "jobs_by_id_end"):
        assert any("SEARCH jobs USING" in step and index in step for step in plan), plan


@pytest.mark.parametrize(
    ("name", "index"), [("expired_jobs", "jobs_by_end"), ("expired_events", "events_by_time")]
)
def test_retention_finds_rows_by_time(database: sqlite3.Connection, name: str, index: str):
    assert any(f"INDEX {index}" in step for step in plan_of(database, name))


def plan_of(database: sqlite3.Connection, name: str) -> list[str]:
    sql = queries()[name]
    named = dict.fromkeys(re.findall(r":(\w+)", sql))
    found = database.execute(f"EXPLAIN QUERY PLAN {sql}", named or [None] * sql.count("?"))
    return [row[3] for row in found.fetchall()]
