"""Looks for everything that can be wrong with a store, and changes nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from rota.core.model import Job, JobId, NodeId
from rota.errors import StoreError
from rota.store.codec import CodecError
from rota.store.connect import READ_ONLY, connect, require_ours
from rota.store.faults import RESTORE, explained, faults
from rota.store.migrate import pending
from rota.store.queries import queries
from rota.store.tables import TABLES, job_row, read_job, read_sample

BUSY_S = 1.0
SHOWN_MAX = 100
"""A broken file can be broken in as many places as it has rows."""


def check(path: Path) -> list[str]:
    """What is wrong, one sentence each. Raises where there is nothing to look into."""
    try:
        return _check(path)
    except StoreError as error:
        raise _onward(error) from None


def _onward(error: StoreError) -> StoreError:
    """Without the advice to do what was just done."""
    hint = RESTORE if "rota store check" in error.hint else error.hint
    return StoreError(error.trouble, error.message, hint)


def _check(path: Path) -> list[str]:
    with faults(path), closing(connect(path, READ_ONLY, busy_s=BUSY_S)) as connection:
        require_ours(connection, path)
        steps = pending(connection, path)
        # One snapshot, so that a daemon may go on writing meanwhile.
        connection.execute("BEGIN")
        found = list(_damage(connection, path))
        if steps and not found:
            found.append(f"schema {steps[0].version} is missing; run 'rota store migrate'")
        if not found:
            found.extend(_contradictions(connection))
    return found[:SHOWN_MAX]


def _damage(connection: sqlite3.Connection, path: Path) -> Iterator[str]:
    """What SQLite itself finds."""
    try:
        for (line,) in connection.execute(f"PRAGMA integrity_check({SHOWN_MAX})"):
            if line != "ok":
                yield from line.splitlines()
        for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            place = f"{table}, row {row}" if row is not None else table
            yield f"{place}: refers to something that is not in {parent}"
    except sqlite3.Error as error:
        yield str(_onward(explained(error, path)))


def _contradictions(connection: sqlite3.Connection) -> Iterator[str]:
    """What only rota can know to be wrong."""
    for (job_id,) in connection.execute(queries()["check_submissions"]):
        yield f"job {job_id}: nobody knows what it runs"
    for job_id, state, attempt, alive in connection.execute(queries()["check_attempts"]):
        attempts = "no attempt" if alive is None else f"attempt {alive}"
        yield f"job {job_id}: {state} in attempt {attempt}, but {attempts} is alive"
    for job_id, state, after in connection.execute(queries()["check_events"]):
        yield f"job {job_id}: {state}, but its last event made it {after or 'nothing'}"
    jobs: list[Job] = []
    for columns in connection.execute(queries()["check_columns"]):
        try:
            job = read_job(columns[0], columns[-1])
        except CodecError as error:
            yield str(error)
            continue
        if job_row(job)[:-1] != columns[:-1]:
            yield f"job {columns[0]}: its columns and its body differ"
        jobs.append(job)
    yield from _overbooked(jobs)
    yield from _unreadable(connection)


def _overbooked(jobs: Iterable[Job]) -> Iterator[str]:
    """GPUs that are held whole by one worker and by another, too."""
    whole: Counter[tuple[NodeId, int]] = Counter()
    shared: set[tuple[NodeId, int]] = set()
    holders: dict[tuple[NodeId, int], list[JobId]] = {}
    for job in jobs:
        for slot in job.members:
            for card in ((slot.node, index) for index in slot.gpus):
                holders.setdefault(card, []).append(job.id)
                if slot.share_bytes:
                    shared.add(card)
                else:
                    whole[card] += 1
    for card, n_whole in whole.items():
        if n_whole > 1 or card in shared:
            node, index = card
            yield f"node {node}, GPU {index}: held by {', '.join(holders[card])}"


def _unreadable(connection: sqlite3.Connection) -> Iterator[str]:
    for kind, table in TABLES.items():
        for row in connection.execute(queries()[table.all]):
            try:
                table.unpack(row)
            except ValueError as error:
                yield f"{kind.__name__.lower()} {row[0]}: {error}"
    for row in connection.execute(queries()["check_samples"]):
        try:
            read_sample(row)
        except ValueError as error:
            yield f"job {row[0]}: a sample has {error}"
