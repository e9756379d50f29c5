"""The store of one box: a SQLite file, one writer, and as many readers as ask."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import Future
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from rota.core.model import Job, JobId, Node
from rota.core.states import State
from rota.errors import StoreError, Trouble
from rota.store.base import PAGE_SIZE, STORY_SIZE, Batch, R
from rota.store.connect import (
    READ_WRITE,
    Identity,
    connect,
    make_durable,
    require_ours,
    require_whole,
    require_writable,
)
from rota.store.faults import faults
from rota.store.migrate import create, migrate, newest, pending, version_of
from rota.store.queries import queries
from rota.store.readers import Readers
from rota.store.records import ALL, Attempt, Entry, JobFilter, Page, Sample, Saved, Submission
from rota.store.statements import statements
from rota.store.tables import (
    TABLES,
    Value,
    read_attempt,
    read_entry,
    read_job,
    read_sample,
    read_worker,
)
from rota.store.writer import Writer

BUSY_S = 1.0
"""How long to wait for another program's lock."""
CHECKED_BYTES_MAX = 64 * 1024**2
"""Up to this size a file is looked through when it is opened (about 0.1 s for each 30 MB)."""


class SqliteStore:
    """Satisfies `rota.store.base.Store`. Makes the file, or brings it to the newest schema."""

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        with faults(path):
            if not path.exists():
                create(path)
            require_writable(path)
            connection = connect(path, READ_WRITE, busy_s=busy_s)
            try:
                _prepare(connection, path)
                self._identity = Identity.of(path)
            except BaseException:
                connection.close()
                raise
        self._path = path
        self._connection = connection
        self._writer = Writer(connection, path, is_sound=self._require_sound)
        self._readers = Readers(path, busy_s=busy_s)

    def write(self, batch: Batch) -> Future[None]:
        with faults(self._path):
            return self._writer.write(statements(batch))

    def resume(self) -> Future[None]:
        with faults(self._path):
            return self._writer.resume()

    def load(self) -> Saved:
        with self._readers.snapshot() as connection:
            return Saved(
                jobs=tuple(read_job(*row) for row in _ask(connection, "live_jobs")),
                nodes=tuple(_all(connection, Node)),
                outcomes={
                    JobId(each): State(state) for each, state in _ask(connection, "outcomes")
                },
            )

    def job(self, job_id: JobId) -> Job | None:
        with self._readers.one() as connection:
            found = _ask(connection, "job", job_id)
            return read_job(*found[0]) if found else None

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> Page:
        parameters = {
            "before": before,
            "states": json.dumps(sorted(wanted.states)),
            "user": wanted.user,
            "project": wanted.project,
            "word": wanted.word,
            "limit": limit,
        }
        with self._readers.one() as connection:
            found = connection.execute(queries()["jobs"], parameters).fetchall()
            shown = found[:limit]
            jobs = tuple(read_job(job_id, body) for _, job_id, body in shown)
        return Page(jobs, shown[-1][0] if shown and len(found) > limit else None)

    def submission(self, job_id: JobId) -> Submission | None:
        with self._readers.one() as connection:
            found = _ask(connection, "submission", job_id)
            return Submission(*found[0]) if found else None

    def job_with_key(self, user: str, key: str) -> JobId | None:
        with self._readers.one() as connection:
            found = _ask(connection, "job_with_key", user, key)
            return JobId(found[0][0]) if found else None

    def attempts(self, job_id: JobId) -> list[Attempt]:
        with self._readers.snapshot() as connection:
            workers = map(read_worker, _ask(connection, "workers", job_id))
            by_attempt = {n: tuple(each) for n, each in groupby(workers, attrgetter("attempt"))}
            return [
                read_attempt(row, by_attempt.get(row[1], ()))
                for row in _ask(connection, "attempts", job_id)
            ]

    def story(
        self, job_id: JobId | None = None, *, after: int = 0, limit: int = STORY_SIZE
    ) -> list[Entry]:
        with self._readers.one() as connection:
            if job_id is None:
                found = _ask(connection, "story", after, limit)
            else:
                found = _ask(connection, "story_of_job", job_id, after, limit)
            return [read_entry(row) for row in found]

    def newest_entry(self) -> int:
        with self._readers.one() as connection:
            return _ask(connection, "newest_entry")[0][0]

    def samples(self, job_id: JobId) -> list[Sample]:
        with self._readers.one() as connection:
            return [read_sample(row) for row in _ask(connection, "samples", job_id)]

    def rows(self, kind: type[R]) -> list[R]:
        with self._readers.one() as connection:
            return _all(connection, kind)

    def close(self) -> None:
        self._readers.close()
        self._writer.close()

    def _require_sound(self) -> None:
        """A commit counts only if the files are still those that have our names, and nobody has
        moved the schema on under us."""
        self._identity.require()
        if version_of(self._connection) != newest():
            raise StoreError(
                Trouble.NEWER,
                f"{self._path}: another rota changed its schema",
                "start this rota again in the newer version",
            )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    require_ours(connection, path)
    if path.stat().st_size <= CHECKED_BYTES_MAX:
        require_whole(connection, path)
    make_durable(connection)
    migrate(connection, pending(connection, path))
    # A change that is taken back: a file that cannot be written, or is locked, is told now.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {newest()}")
    connection.execute("ROLLBACK")


def _ask(connection: sqlite3.Connection, name: str, *parameters: Value) -> list[Any]:
    return connection.execute(queries()[name], parameters).fetchall()


def _all(connection: sqlite3.Connection, kind: type[R]) -> list[R]:
    table = TABLES[kind]
    return [table.unpack(row) for row in _ask(connection, table.all)]
