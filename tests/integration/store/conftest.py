"""A store on a real file, with a few jobs in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import StoreWorkload, random_steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """A store that does not wait for locks of other programs."""
    opened = SqliteStore(path, busy_s=0.01)
    yield opened
    opened.close()


@pytest.fixture
def filled(path: Path) -> Path:
    """A file with some hundred jobs, closed as after an orderly stop."""
    store, life = SqliteStore(path), StoreWorkload()
    written = [store.write(life.step(step)) for step in random_steps(seed=1, count=200)]
    written += [store.write(life.submit(number, number)) for number in range(200)]
    for each in written:
        each.result()
    store.close()
    return path
