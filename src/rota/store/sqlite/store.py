"""The store of a single machine: one SQLite file, one writer thread, a pool of readers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import structlog

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node
from rota.errors import StoreError, StoreErrorKind
from rota.store.codec import CodecError
from rota.store.interface import PAGE_SIZE, STORY_SIZE, Batch, R
from rota.store.records import (
    ALL,
    Attempt,
    AuditEntry,
    JobFilter,
    SampleRecord,
    SavedState,
    StoredJobPage,
    Submission,
)
from rota.store.sqlite.batch_sql import statements
from rota.store.sqlite.connect import (
    READ_WRITE,
    DatabaseFileIdentity,
    connect,
    make_durable,
    require_ours,
    require_whole,
    require_writable,
)
from rota.store.sqlite.errors import as_store_errors, refused
from rota.store.sqlite.migrate import create, migrate, newest, pending, version_of
from rota.store.sqlite.reader_pool import ReaderPool
from rota.store.sqlite.row_codec import (
    TABLES,
    Value,
    read_attempt,
    read_entry,
    read_job,
    read_sample,
    read_worker,
)
from rota.store.sqlite.sql_loader import queries
from rota.store.sqlite.writer import Writer

log = structlog.get_logger()

BUSY_S = 1.0
"""How long to wait for a lock of another program."""
LAST_CHARACTER = chr(0x10FFFF)
"""Sorts after every character: all texts with a prefix are below the prefix and this character."""
MAX_CHECKED_BYTES = 64 * 1024**2
"""A file up to this size is checked for damage when it is opened (about 0.1 s per 30 MB)."""


class SqliteStore:
    """Satisfies `rota.store.interface.Store`. Creates the file, or migrates it to our schema."""

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        with as_store_errors(path):
            if not path.exists():
                create(path)
            require_writable(path)
            connection = connect(path, READ_WRITE, busy_s=busy_s)
            try:
                _prepare(connection, path)
                self._identity = DatabaseFileIdentity.of(path)
            except BaseException:
                connection.close()
                raise
        self._path = path
        self._connection = connection
        self._writer = Writer(connection, path, verify=self._verify_file)
        self._reader_pool = ReaderPool(path, busy_s=busy_s)

    def write(self, batch: Batch) -> Future[None]:
        with as_store_errors(self._path):
            try:
                values = statements(batch)
            except CodecError as error:
                raise refused(self._path, error) from error
            return self._writer.write(values)

    def resume(self) -> Future[None]:
        with as_store_errors(self._path):
            return self._writer.resume()

    def load(self) -> SavedState:
        with self._reader_pool.snapshot() as connection:
            jobs, unreadable = list[Job](), dict[JobId, str]()
            for job_id, body in _query(connection, "live_jobs"):
                try:
                    jobs.append(read_job(job_id, body))
                except CodecError as error:
                    unreadable[job_id] = str(error)
            needed = {job_id for job in jobs for job_id in job.spec.dependencies}
            outcomes = _query(connection, "outcomes", json.dumps(sorted(needed)))
            return SavedState(
                jobs=tuple(jobs),
                nodes=tuple(_read_all(connection, Node)),
                outcomes={JobId(each): JobState(state) for each, state in outcomes},
                unreadable=unreadable,
            )

    def job(self, job_id: JobId) -> Job | None:
        with self._reader_pool.reader() as connection:
            found = _query(connection, "job", job_id)
            return read_job(*found[0]) if found else None

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> StoredJobPage:
        parameters = {
            "before": before,
            "states": json.dumps(sorted(wanted.states)),
            "user": wanted.user,
            "project": wanted.project,
            "word": wanted.word,
            "word_end": wanted.word + LAST_CHARACTER,
            "limit": limit,
        }
        query = queries()["jobs_by_word" if wanted.word else "jobs"]
        with self._reader_pool.reader() as connection:
            found = connection.execute(query, parameters).fetchall()
            shown = found[:limit]
            jobs = tuple(_readable_jobs(shown))
        return StoredJobPage(jobs, shown[-1][0] if shown and len(found) > limit else None)

    def count_jobs(self, wanted: JobFilter = ALL) -> int:
        parameters = {
            "states": json.dumps(sorted(wanted.states)),
            "user": wanted.user,
            "project": wanted.project,
        }
        with self._reader_pool.reader() as connection:
            [[count]] = connection.execute(queries()["count_jobs"], parameters).fetchall()
            return count

    def submission(self, job_id: JobId) -> Submission | None:
        with self._reader_pool.reader() as connection:
            found = _query(connection, "submission", job_id)
            return Submission(*found[0]) if found else None

    def request_bytes(self) -> Mapping[str, int]:
        with self._reader_pool.reader() as connection:
            return dict(_query(connection, "request_bytes"))

    def job_with_key(self, user: str, key: str) -> JobId | None:
        with self._reader_pool.reader() as connection:
            found = _query(connection, "job_with_key", user, key)
            return JobId(found[0][0]) if found else None

    def attempts(self, job_id: JobId) -> list[Attempt]:
        with self._reader_pool.snapshot() as connection:
            workers = map(read_worker, _query(connection, "workers", job_id))
            by_attempt = {n: tuple(each) for n, each in groupby(workers, attrgetter("attempt"))}
            return [
                read_attempt(row, by_attempt.get(row[1], ()))
                for row in _query(connection, "attempts", job_id)
            ]

    def story(
        self, job_id: JobId | None = None, *, after: int = 0, limit: int = STORY_SIZE
    ) -> list[AuditEntry]:
        with self._reader_pool.reader() as connection:
            if job_id is None:
                found = _query(connection, "story", after, limit)
            else:
                found = _query(connection, "story_of_job", job_id, after, limit)
            return [read_entry(row) for row in found]

    def newest_entry(self) -> int:
        with self._reader_pool.reader() as connection:
            return _query(connection, "newest_entry")[0][0]

    def samples(self, job_id: JobId) -> list[SampleRecord]:
        with self._reader_pool.reader() as connection:
            return [read_sample(row) for row in _query(connection, "samples", job_id)]

    def expired_jobs(self, before_s: float, *, keep: Collection[JobId], limit: int) -> list[JobId]:
        parameters = {"before_s": before_s, "keep": json.dumps(sorted(keep)), "limit": limit}
        with self._reader_pool.reader() as connection:
            found = connection.execute(queries()["expired_jobs"], parameters).fetchall()
        return [JobId(job_id) for (job_id,) in found]

    def expired_entries(self, before_s: float, *, limit: int) -> list[int]:
        parameters = {"before_s": before_s, "limit": limit}
        with self._reader_pool.reader() as connection:
            found = connection.execute(queries()["expired_events"], parameters).fetchall()
        return [number for (number,) in found]

    def rows(self, kind: type[R]) -> list[R]:
        with self._reader_pool.reader() as connection:
            return _read_all(connection, kind)

    def close(self) -> None:
        self._reader_pool.close()
        self._writer.close()

    def _verify_file(self) -> None:
        """Raise if the file was deleted or replaced, or if another rota changed its schema."""
        self._identity.require()
        if version_of(self._connection) != newest():
            raise StoreError(
                StoreErrorKind.NEWER,
                f"{self._path}: another version of rota changed the schema",
                "restart rota with the newer version",
            )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    require_ours(connection, path)
    if path.stat().st_size <= MAX_CHECKED_BYTES:
        require_whole(connection, path)
    make_durable(connection)
    migrate(connection, pending(connection, path))
    # Write and roll back, so that a read-only or locked file fails now and not at the first batch.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {newest()}")
    connection.execute("ROLLBACK")


def _query(connection: sqlite3.Connection, name: str, *parameters: Value) -> list[Any]:
    return connection.execute(queries()[name], parameters).fetchall()


def _read_all(connection: sqlite3.Connection, kind: type[R]) -> list[R]:
    """All rows of a table, except those that cannot be read: one of them must not stop a start."""
    table, found = TABLES[kind], list[R]()
    for row in _query(connection, table.all):
        try:
            found.append(table.unpack(row))
        except CodecError as error:
            log.error("stored row unreadable, ignored", kind=kind.__name__, error=str(error))
    return found


def _readable_jobs(rows: Iterable[tuple[int, str, str]]) -> Iterator[Job]:
    """The jobs of a page of a list. An unreadable job is not listed; `rota show` says why."""
    for _, job_id, body in rows:
        with suppress(CodecError):
            yield read_job(job_id, body)
