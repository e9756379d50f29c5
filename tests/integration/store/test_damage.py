"""Opening a damaged file fails, and `rota store check` lists the damage."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rota.errors import StoreError, StoreErrorKind
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import OPENING, batches

PAGE = 4096


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def cut_to_nothing(_: bytes) -> bytes:
    return b""


def cut_within_a_page(content: bytes) -> bytes:
    return content[: -PAGE - 100]


def garbage(content: bytes) -> bytes:
    return random.Random(1).randbytes(len(content))


def garbage_in_a_page(content: bytes) -> bytes:
    middle = len(content) // 2 // PAGE * PAGE
    return content[:middle] + random.Random(1).randbytes(PAGE) + content[middle + PAGE :]


def a_page_twice(content: bytes) -> bytes:
    """Move the second page to the end, so that all later pages are misplaced."""
    return content[:PAGE] + content[2 * PAGE :] + content[PAGE : 2 * PAGE]


@pytest.mark.parametrize(
    "damage",
    [
        cut_in_half,
        cut_to_nothing,
        cut_within_a_page,
        garbage,
        garbage_in_a_page,
        a_page_twice,
    ],
)
def test_opening_a_damaged_file_fails(filled: Path, damage: Callable[[bytes], bytes]):
    filled.write_bytes(damage(filled.read_bytes()))
    damaged = filled.read_bytes()
    with pytest.raises(StoreError) as caught:
        SqliteStore(filled)
    assert caught.value.kind is StoreErrorKind.DAMAGED
    assert str(filled) in caught.value.message
    assert "backup" in caught.value.hint
    assert filled.read_bytes() == damaged, "what is left of it stays as it is"
    assert complaints(filled)


def complaints(path: Path) -> list[str]:
    try:
        return check(path)
    except StoreError as error:
        return [str(error)]


def tamper(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("DELETE FROM submissions WHERE job_id = 'job-00001'", "has no submission"),
        ("UPDATE attempts SET ended_s = NULL WHERE job_id = 'job-00001'", "but attempt 1 is alive"),
        ("DELETE FROM attempts WHERE ended_s IS NULL", "workers: refers to a missing row"),
        (
            "DELETE FROM events WHERE after = 'succeeded'",
            "state is succeeded, but its last event leads to",
        ),
        ("UPDATE jobs SET name = 'other' WHERE id = 'job-00001'", "columns differ from its body"),
        ("UPDATE jobs SET body = '{' WHERE id = 'job-00001'", "job job-00001: not JSON"),
        ("UPDATE nodes SET body = '{}'", "node node-"),
        ("DELETE FROM jobs WHERE id = 'job-00001'", "refers to a missing row of jobs"),
    ],
)
def test_contradictions_are_listed(filled: Path, sql: str, complaint: str):
    assert check(filled) == []
    tamper(filled, sql)
    assert any(complaint in line for line in check(filled)), check(filled)


def test_gpu_held_by_two_jobs_is_reported(path: Path):
    """The second job is a copy of the first."""
    store = SqliteStore(path)
    for batch in batches(OPENING):
        store.write(batch).result()
    store.close()
    tamper(
        path,
        "INSERT INTO jobs (id, name, user, project, state, attempt, body)"
        " SELECT 'copy', name, user, project, state, attempt, replace(body, id, 'copy') FROM jobs"
        " WHERE state = 'running'",
    )
    expected = "node node-1, GPU 1: overbooked by jobs job-00001, copy"
    assert expected in check(path), check(path)


def test_unreadable_job_does_not_prevent_the_start(filled: Path):
    before = SqliteStore(filled)
    n_jobs = len(before.load().jobs)
    before.close()
    tamper(
        filled,
        "UPDATE jobs SET body = '{}' WHERE id ="
        " (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1)",
    )
    store = SqliteStore(filled)
    found = store.load()
    [(job_id, reason)] = found.unreadable.items()
    assert job_id in reason
    assert (len(found.jobs), job_id in {job.id for job in found.jobs}) == (n_jobs - 1, False)
    listed = store.jobs(limit=1000).jobs
    assert {job.id for job in found.jobs} <= {job.id for job in listed}
    with pytest.raises(StoreError, match=f"the file is damaged: job {job_id}"):
        store.job(job_id)
    store.close()
