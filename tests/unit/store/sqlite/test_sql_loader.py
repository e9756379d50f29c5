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


@pytest.mark.parametrize("name", ["live_jobs", "outcomes"])
def test_a_start_reads_jobs_by_their_state(database: sqlite3.Connection, name: str):
    plan = database.execute(f"EXPLAIN QUERY PLAN {queries()[name]}").fetchall()
    assert any("jobs_by_state" in row[3] for row in plan)
