"""Databases of every released schema open with unchanged content.

`released/NNNN.sql` is a database as that release wrote it, and `released/NNNN.json` is its content
with all fields, also those with default values. These files never change.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.job import Processes
from rota.store.sqlite.check import check
from rota.store.sqlite.connect import READ_WRITE, connect
from rota.store.sqlite.migrate import migrate, newest, version_of
from rota.store.sqlite.sql_loader import Migration, migrations
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import StoreWorkload

RELEASED = sorted((Path(__file__).parent / "released").glob("*.sql"))


def test_every_schema_has_a_released_database():
    assert [int(each.stem) for each in RELEASED] == [each.version for each in migrations()]


@pytest.mark.parametrize("released", RELEASED, ids=lambda each: each.stem)
def test_a_released_database_opens(path: Path, released: Path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(released.read_text())
    expected = json.loads(released.with_suffix(".json").read_text())
    store = SqliteStore(path)
    saved = store.load()
    held = {
        "jobs": plain(saved.jobs),
        "nodes": plain(saved.nodes),
        "story": plain(store.story()),
        "samples": [plain(store.samples(job.id)) for job in saved.jobs],
    }
    assert contains(held, expected)
    for job in saved.jobs:  # Each slot was a worker with the GPUs of one unit.
        assert job.spec.processes is Processes.PER_GPU
        assert job.units == len(job.allocation)
    store.write(StoreWorkload(first_job=1_000).submit(1, 0)).result()
    store.close()
    assert check(path) == []


def plain(value: Any) -> Any:
    """JSON with every field named."""
    match value:
        case SpeedModel():
            named = {each.name: plain(getattr(value, each.name)) for each in fields(value)}
            return {**named, "speedups": value}
        case list() | tuple():
            return [plain(each) for each in value]
        case Mapping():
            return [[plain(key), plain(each)] for key, each in value.items()]
        case frozenset():
            return sorted(plain(each) for each in value)
        case float() if math.isinf(value):
            return str(value)
        case _ if is_dataclass(value):
            return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
        case _:
            return value


def contains(held: Any, expected: Any) -> bool:
    """Whether the found value has all expected fields; newer fields may be added."""
    match expected:
        case list() if isinstance(held, SpeedModel):
            # Until version 2 of the codec, a model had a table of its speed-ups.
            return held.speedups(len(expected) - 1)[: len(expected)] == pytest.approx(expected)
        case "prior" if isinstance(held, SpeedModel):
            return not held.assumed and not held.measured
        case "prior":
            return held == []
        case dict():
            return all(contains(held[key], value) for key, value in expected.items())
        case list():
            return len(held) == len(expected) and all(map(contains, held, expected))
        case _:
            return held == expected


def test_failed_migration_changes_nothing(filled: Path):
    good = Migration(newest() + 1, "good", "CREATE TABLE extra (a TEXT) STRICT;")
    bad = Migration(newest() + 2, "bad", "DROP TABLE extra; CREATE TABLE jobs (a TEXT);")
    with closing(connect(filled, READ_WRITE, busy_s=0)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, [good, bad])
        assert not connection.in_transaction
        assert version_of(connection) == good.version
        assert connection.execute("SELECT * FROM extra").fetchall() == []
