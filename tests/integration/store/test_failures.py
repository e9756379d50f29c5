"""Writes to an unusable file fail at once, and succeed after `resume` when the file is usable."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects, Transition
from rota.core.model.job import JobId
from rota.errors import StoreError, StoreErrorKind
from rota.store.interface import Batch
from rota.store.records import Project
from rota.store.sqlite.connect import wal_path
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import StoreWorkload

Crowd = Callable[[Sequence[Batch]], list[BaseException | None]]
BATCH = Batch(rows=(Project("vision"),))


def kind(attempt: Callable[[], object]) -> StoreErrorKind:
    with pytest.raises(StoreError) as caught:
        attempt()
    assert str(caught.value.message).count("\n") == 0
    assert caught.value.hint
    return caught.value.kind


def write(store: SqliteStore) -> None:
    store.write(BATCH).result()


@pytest.fixture
def stranger(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """Another program that has the file open."""
    write(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_locked_by_another_program(store: SqliteStore, stranger: sqlite3.Connection):
    stranger.execute("BEGIN IMMEDIATE")
    assert kind(lambda: write(store)) is StoreErrorKind.LOCKED
    assert store.rows(Project) == [Project("vision")]
    stranger.execute("ROLLBACK")
    assert kind(lambda: write(store)) is StoreErrorKind.LOCKED
    store.resume().result()
    write(store)


def test_locked_when_it_is_opened(filled: Path):
    with closing(sqlite3.connect(filled, isolation_level=None)) as stranger:
        stranger.execute("PRAGMA locking_mode = EXCLUSIVE")
        stranger.execute("BEGIN EXCLUSIVE")
        assert kind(lambda: SqliteStore(filled, busy_s=0.01)) is StoreErrorKind.LOCKED


@pytest.mark.parametrize("name", [lambda path: path, wal_path], ids=["database", "log"])
def test_moved_away_and_back(store: SqliteStore, path: Path, name: Callable[[Path], Path]):
    write(store)
    file = name(path)
    away = file.rename(file.with_name("away"))
    assert kind(lambda: write(store)) is StoreErrorKind.MISSING
    assert kind(lambda: store.resume().result()) is StoreErrorKind.MISSING
    assert kind(lambda: write(store)) is StoreErrorKind.MISSING
    away.rename(file)
    store.resume().result()
    write(store)


def test_queued_batches_fail_after_a_failed_commit(
    store: SqliteStore, stranger: sqlite3.Connection
):
    stranger.execute("BEGIN IMMEDIATE")
    lost = [store.write(Batch(rows=(Project(f"lost-{number}"),))) for number in range(3)]
    assert kind(lost[0].result) is StoreErrorKind.LOCKED
    stranger.execute("ROLLBACK")
    resumed, kept = store.resume(), store.write(Batch(rows=(Project("kept"),)))
    assert {kind(each.result) for each in lost} == {StoreErrorKind.LOCKED}
    resumed.result()
    kept.result()
    assert store.rows(Project) == [Project("kept"), Project("vision")]


def test_replaced_by_another_file(store: SqliteStore, path: Path):
    write(store)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert kind(lambda: write(store)) is StoreErrorKind.MISSING


def test_another_program_changes_the_schema(store: SqliteStore, stranger: sqlite3.Connection):
    stranger.execute("PRAGMA user_version = 99")
    assert kind(lambda: write(store)) is StoreErrorKind.NEWER


def test_database_of_a_newer_version_is_rejected(filled: Path):
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert kind(lambda: SqliteStore(filled)) is StoreErrorKind.NEWER


def test_database_of_another_program_is_rejected(path: Path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    assert kind(lambda: SqliteStore(path)) is StoreErrorKind.FOREIGN


def test_log_without_its_database_is_rejected(path: Path):
    wal_path(path).write_bytes(b"left behind")
    assert kind(lambda: SqliteStore(path)) is StoreErrorKind.MISSING
    assert not path.exists()


def test_folder_that_cannot_be_created_is_reported(path: Path):
    path.write_text("a file")
    assert kind(lambda: SqliteStore(path / "rota.db")) is StoreErrorKind.IO


def test_closed_store_rejects_writes(store: SqliteStore):
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.write(BATCH)
    with pytest.raises(StoreError, match="the store is closed"):
        store.load()


def of_nobody(_: StoreWorkload) -> Batch:
    moved = Transition(1.0, JobId("nobody"), 1, JobState.QUEUED, JobState.STARTING, "Plan")
    return Batch(Effects(1.0, transitions=[moved]))


def with_a_used_key(life: StoreWorkload) -> Batch:
    batch = life.submit(1, 1)
    (submission,) = batch.submissions
    return replace(batch, submissions=(replace(submission, user="ann", key="used"),))


def with_half_a_character(_: StoreWorkload) -> Batch:
    return Batch(rows=(Project("\ud800"),))


def with_too_great_a_number(life: StoreWorkload) -> Batch:
    batch = life.submit(1, 1)
    (submission,) = batch.submissions
    return replace(batch, submissions=(replace(submission, uid=2**70),))


@pytest.fixture
def patient(path: Path) -> Iterator[SqliteStore]:
    """A store that waits for a lock of another program while batches queue up."""
    opened = SqliteStore(path, busy_s=60)
    yield opened
    opened.close()


@pytest.fixture
def crowd(patient: SqliteStore, path: Path) -> Iterator[Crowd]:
    """Submits batches while the file is locked, so that they are written as one group."""
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
def test_a_rejected_batch_fails_alone(
    patient: SqliteStore, crowd: Crowd, wrong: Callable[[StoreWorkload], Batch]
):
    life = StoreWorkload()
    good, bad, also_good = crowd(
        [with_a_used_key(life), wrong(life), Batch(rows=(Project("speech"),))]
    )
    assert good is None
    assert also_good is None
    assert isinstance(bad, StoreError)
    assert bad.kind is StoreErrorKind.REFUSED
    assert patient.rows(Project) == [Project("speech"), Project("vision")]
    assert [job.id for job in patient.load().jobs] == ["job-00001"]


def test_many_batches_share_a_commit(crowd: Crowd, path: Path):
    life = StoreWorkload()
    before = n_commits(path)
    assert crowd([life.submit(number, 0) for number in range(200)]) == [None] * 200
    assert n_commits(path) - before <= 2


def test_a_write_cannot_be_cancelled(store: SqliteStore):
    assert not store.write(BATCH).cancel()
    write(store)


def n_commits(path: Path) -> int:
    """Counted in SQLite's log: a frame that ends a commit has the size of the database in it."""
    log = wal_path(path).read_bytes()
    if not log:
        return 0
    (page_size,) = struct.unpack(">I", log[8:12])
    frames = range(32, len(log) - 24, page_size + 24)
    return sum(struct.unpack(">I", log[at + 4 : at + 8])[0] > 0 for at in frames)
