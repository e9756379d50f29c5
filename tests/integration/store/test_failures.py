"""A file that cannot be used says so at once, and the store goes on as soon as it can be."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.effects import Effects, Transition
from rota.core.model import JobId
from rota.core.states import State
from rota.errors import StoreError, Trouble
from rota.store.base import Batch
from rota.store.connect import log_of
from rota.store.records import Project
from rota.store.sqlite import SqliteStore
from tests.lives import Life

Crowd = Callable[[Sequence[Batch]], list[BaseException | None]]
BATCH = Batch(rows=(Project("vision"),))


def trouble(attempt: Callable[[], object]) -> Trouble:
    with pytest.raises(StoreError) as caught:
        attempt()
    assert str(caught.value.message).count("\n") == 0
    assert caught.value.hint
    return caught.value.trouble


def write(store: SqliteStore) -> None:
    store.write(BATCH).result()


@pytest.fixture
def stranger(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """Another program that has the file open."""
    write(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_locked_by_somebody_else(store: SqliteStore, stranger: sqlite3.Connection):
    stranger.execute("BEGIN IMMEDIATE")
    assert trouble(lambda: write(store)) is Trouble.LOCKED
    assert store.rows(Project) == [Project("vision")]
    stranger.execute("ROLLBACK")
    assert trouble(lambda: write(store)) is Trouble.LOCKED
    store.resume().result()
    write(store)


def test_locked_when_it_is_opened(filled: Path):
    with closing(sqlite3.connect(filled, isolation_level=None)) as stranger:
        stranger.execute("PRAGMA locking_mode = EXCLUSIVE")
        stranger.execute("BEGIN EXCLUSIVE")
        assert trouble(lambda: SqliteStore(filled, busy_s=0.01)) is Trouble.LOCKED


@pytest.mark.parametrize("name", [lambda path: path, log_of], ids=["database", "log"])
def test_moved_away_and_back(store: SqliteStore, path: Path, name: Callable[[Path], Path]):
    write(store)
    file = name(path)
    away = file.rename(file.with_name("away"))
    assert trouble(lambda: write(store)) is Trouble.MISSING
    assert trouble(lambda: store.resume().result()) is Trouble.MISSING
    assert trouble(lambda: write(store)) is Trouble.MISSING
    away.rename(file)
    store.resume().result()
    write(store)


def test_what_was_handed_in_after_a_failure_fails_with_it(
    store: SqliteStore, stranger: sqlite3.Connection
):
    stranger.execute("BEGIN IMMEDIATE")
    lost = [store.write(Batch(rows=(Project(f"lost-{number}"),))) for number in range(3)]
    assert trouble(lost[0].result) is Trouble.LOCKED
    stranger.execute("ROLLBACK")
    resumed, kept = store.resume(), store.write(Batch(rows=(Project("kept"),)))
    assert {trouble(each.result) for each in lost} == {Trouble.LOCKED}
    resumed.result()
    kept.result()
    assert store.rows(Project) == [Project("kept"), Project("vision")]


def test_replaced_by_another_file(store: SqliteStore, path: Path):
    write(store)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert trouble(lambda: write(store)) is Trouble.MISSING


def test_the_schema_moves_on_under_it(store: SqliteStore, stranger: sqlite3.Connection):
    stranger.execute("PRAGMA user_version = 99")
    assert trouble(lambda: write(store)) is Trouble.NEWER


def test_a_database_of_a_newer_rota(filled: Path):
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert trouble(lambda: SqliteStore(filled)) is Trouble.NEWER


def test_a_database_of_somebody_else(path: Path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    assert trouble(lambda: SqliteStore(path)) is Trouble.FOREIGN


def test_a_log_without_its_database(path: Path):
    log_of(path).write_bytes(b"left behind")
    assert trouble(lambda: SqliteStore(path)) is Trouble.MISSING
    assert not path.exists()


def test_a_folder_that_cannot_be_made(path: Path):
    path.write_text("a file")
    assert trouble(lambda: SqliteStore(path / "rota.db")) is Trouble.IO


def test_closed(store: SqliteStore):
    store.close()
    store.close()
    with pytest.raises(StoreError, match="it has been closed"):
        store.write(BATCH)
    with pytest.raises(StoreError, match="it has been closed"):
        store.load()


def of_nobody(_: Life) -> Batch:
    moved = Transition(1.0, JobId("nobody"), 1, State.QUEUED, State.STARTING, "Plan")
    return Batch(Effects(1.0, transitions=[moved]))


def with_a_used_key(life: Life) -> Batch:
    batch = life.submit(1, 1)
    (submission,) = batch.submissions
    return replace(batch, submissions=(replace(submission, user="ann", key="used"),))


def with_half_a_character(_: Life) -> Batch:
    return Batch(rows=(Project("\ud800"),))


def with_too_great_a_number(life: Life) -> Batch:
    batch = life.submit(1, 1)
    (submission,) = batch.submissions
    return replace(batch, submissions=(replace(submission, uid=2**70),))


@pytest.fixture
def patient(path: Path) -> Iterator[SqliteStore]:
    """It waits for the other program, and batches gather meanwhile."""
    opened = SqliteStore(path, busy_s=60)
    yield opened
    opened.close()


@pytest.fixture
def crowd(patient: SqliteStore, path: Path) -> Iterator[Crowd]:
    """Hands in batches while the file is locked, so that they are written as one group."""
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:

        def hand_in(batches: Sequence[Batch]) -> list[BaseException | None]:
            stranger.execute("BEGIN IMMEDIATE")
            waiting = [patient.write(BATCH), *map(patient.write, batches)]
            stranger.execute("ROLLBACK")
            return [each.exception() for each in waiting[1:]]

        yield hand_in


@pytest.mark.parametrize(
    "wrong", [of_nobody, with_a_used_key, with_half_a_character, with_too_great_a_number]
)
def test_a_batch_that_is_refused_fails_alone(
    patient: SqliteStore, crowd: Crowd, wrong: Callable[[Life], Batch]
):
    life = Life()
    good, bad, also_good = crowd(
        [with_a_used_key(life), wrong(life), Batch(rows=(Project("speech"),))]
    )
    assert good is None
    assert also_good is None
    assert isinstance(bad, StoreError)
    assert bad.trouble is Trouble.REFUSED
    assert patient.rows(Project) == [Project("speech"), Project("vision")]
    assert [job.id for job in patient.load().jobs] == ["job-00001"]


def test_many_batches_share_a_commit(crowd: Crowd, path: Path):
    life = Life()
    before = n_commits(path)
    assert crowd([life.submit(number, 0) for number in range(200)]) == [None] * 200
    assert n_commits(path) - before <= 2


def test_who_stops_waiting_does_not_stop_the_writer(store: SqliteStore):
    assert not store.write(BATCH).cancel()
    write(store)


def n_commits(path: Path) -> int:
    """Counted in SQLite's log: a frame that ends a commit has the size of the database in it."""
    log = log_of(path).read_bytes()
    if not log:
        return 0
    (page_size,) = struct.unpack(">I", log[8:12])
    frames = range(32, len(log) - 24, page_size + 24)
    return sum(struct.unpack(">I", log[at + 4 : at + 8])[0] > 0 for at in frames)
