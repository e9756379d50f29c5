"""Checks a database file for damage and contradictions, without changing it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from rota.core.model.job import Job, JobId
from rota.core.model.node import NodeId
from rota.errors import StoreError
from rota.store.codec import CodecError
from rota.store.sqlite.connect import READ_ONLY, connect, require_ours
from rota.store.sqlite.errors import RESTORE, as_store_errors, to_store_error
from rota.store.sqlite.migrate import pending
from rota.store.sqlite.row_codec import TABLES, job_row, read_job, read_sample
from rota.store.sqlite.sql_loader import queries

BUSY_S = 1.0
MAX_SHOWN_PROBLEMS = 100
"""A damaged file can have a problem in every row."""


def check(path: Path) -> list[str]:
    """Return the problems found, one sentence each. Raise if the file cannot be checked at all."""
    try:
        return _check(path)
    except StoreError as error:
        raise _with_restore_hint(error) from None


def _with_restore_hint(error: StoreError) -> StoreError:
    """Replace a hint to run `rota store check`, which the user is running now."""
    hint = RESTORE if "rota store check" in error.hint else error.hint
    return StoreError(error.kind, error.message, hint)


def _check(path: Path) -> list[str]:
    with as_store_errors(path), closing(connect(path, READ_ONLY, busy_s=BUSY_S)) as connection:
        require_ours(connection, path)
        steps = pending(connection, path)
        # One read transaction: a daemon may write to the database during the check.
        connection.execute("BEGIN")
        found = list(_damage(connection, path))
        if steps and not found:
            found.append(f"schema version {steps[0].version} is missing; run 'rota store migrate'")
        if not found:
            found.extend(_contradictions(connection))
    return found[:MAX_SHOWN_PROBLEMS]


def _damage(connection: sqlite3.Connection, path: Path) -> Iterator[str]:
    """Problems that SQLite finds: integrity and foreign keys."""
    try:
        for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_SHOWN_PROBLEMS})"):
            if line != "ok":
                yield from line.splitlines()
        for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            location = f"{table}, row {row}" if row is not None else table
            yield f"{location}: refers to a missing row of {parent}"
    except sqlite3.Error as error:
        yield str(_with_restore_hint(to_store_error(error, path)))


def _contradictions(connection: sqlite3.Connection) -> Iterator[str]:
    """Problems that break rota's own rules."""
    for (job_id,) in connection.execute(queries()["check_submissions"]):
        yield f"job {job_id}: has no submission, so its program is unknown"
    for job_id, state, attempt, alive in connection.execute(queries()["check_attempts"]):
        attempts = "no attempt" if alive is None else f"attempt {alive}"
        yield f"job {job_id}: {state} in attempt {attempt}, but {attempts} is alive"
    for job_id, state, after in connection.execute(queries()["check_events"]):
        last = f"its last event leads to {after}" if after else "it has no event"
        yield f"job {job_id}: state is {state}, but {last}"
    jobs: list[Job] = []
    for columns in connection.execute(queries()["check_columns"]):
        try:
            job = read_job(columns[0], columns[-1])
        except CodecError as error:
            yield str(error)
            continue
        if job_row(job)[:-1] != columns[:-1]:
            yield f"job {columns[0]}: its columns differ from its body"
        jobs.append(job)
    yield from _overbooked(jobs)
    yield from _unreadable(connection)


def _overbooked(jobs: Iterable[Job]) -> Iterator[str]:
    """GPUs that one worker holds whole while another worker holds them too."""
    n_whole: Counter[tuple[NodeId, int]] = Counter()
    shared: set[tuple[NodeId, int]] = set()
    holders: dict[tuple[NodeId, int], list[JobId]] = {}
    for job in jobs:
        for slot in job.members:
            for gpu in ((slot.node, index) for index in slot.gpus):
                holders.setdefault(gpu, []).append(job.id)
                if slot.share_bytes:
                    shared.add(gpu)
                else:
                    n_whole[gpu] += 1
    for gpu, count in n_whole.items():
        if count > 1 or gpu in shared:
            node, index = gpu
            yield f"node {node}, GPU {index}: overbooked by jobs {', '.join(holders[gpu])}"


def _unreadable(connection: sqlite3.Connection) -> Iterator[str]:
    for table in TABLES.values():
        for row in connection.execute(queries()[table.all]):
            try:
                table.unpack(row)
            except ValueError as error:
                yield f"{table.put.removeprefix('put_')} {row[0]}: {error}"
    for row in connection.execute(queries()["check_samples"]):
        try:
            read_sample(row)
        except ValueError as error:
            yield f"job {row[0]}: a sample cannot be read: {error}"
