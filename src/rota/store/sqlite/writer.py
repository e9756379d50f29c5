"""The writer thread: the only thread that writes. Batches that wait together share one commit.

A shared commit (group commit) needs one sync of the disk for many batches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic

from rota.errors import StoreError
from rota.store.sqlite.errors import ROW_ERRORS, closed, to_store_error

MAX_GROUP_SIZE = 1000
GROUP_WAIT_S = 0.001
"""How long a commit waits until it has as many batches as the previous commit.

Callers whose writes complete together send their next writes at almost the same time. Without the
wait, every second commit would contain only the fastest caller's batch."""

Value = str | int | float | None
Values = Sequence[Value]
Statement = tuple[str, Sequence[Values]]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Statements that succeed or fail together, and the future of their caller."""

    statements: Iterable[Statement]
    done: Future[None] = field(default_factory=Future[None])
    resumes: bool = False
    """Whether the writer accepts writes again from this request on, after a failure."""


class Writer:
    """Owns the connection. `verify` raises if a commit to the file would not be durable."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, verify: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._verify = verify
        self._queue: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._queue_lock = Lock()
        self._is_closed = False
        self._last_size = 1
        self._failure: StoreError | None = None
        """Why a commit failed. Later requests may depend on it, so they fail until `resume`."""
        self._thread = Thread(target=self._run, name="rota-store-writer", daemon=True)
        self._thread.start()

    def write(self, statements: Iterable[Statement]) -> Future[None]:
        return self._enqueue(WriteRequest(statements))

    def resume(self) -> Future[None]:
        """Accept writes again after a failure, if the file is writable."""
        return self._enqueue(WriteRequest((), resumes=True))

    def close(self) -> None:
        """Write all queued requests, then close the connection."""
        with self._queue_lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()

    def _enqueue(self, request: WriteRequest) -> Future[None]:
        # From here on the future cannot be cancelled: a caller that gives up must not stop the
        # writer.
        request.done.set_running_or_notify_cancel()
        with self._queue_lock:
            if self._is_closed:
                raise closed(self._path)
            self._queue.put(request)
        return request.done

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            if group:
                self._write_group(group)
        self._connection.close()

    def _next_group(self) -> tuple[list[WriteRequest], bool]:
        """Wait for a request, then add the queued ones. Also return whether the writer is open."""
        group: list[WriteRequest] = []
        request = self._queue.get()
        deadline = monotonic() + GROUP_WAIT_S
        while request is not None:
            group.append(request)
            if len(group) == MAX_GROUP_SIZE:
                break
            left_s = deadline - monotonic() if len(group) < self._last_size else 0.0
            try:
                request = (
                    self._queue.get(timeout=left_s) if left_s > 0 else self._queue.get_nowait()
                )
            except Empty:
                break
        self._last_size = max(1, len(group))
        return group, request is not None

    def _write_group(self, group: Sequence[WriteRequest]) -> None:
        group = self._skip_until_resumed(group)
        if not group:
            return
        try:
            self._commit(group)
        except ROW_ERRORS as error:
            if len(group) > 1:
                # One request is wrong. Commit each alone, so that only the wrong one fails.
                for request in group:
                    self._write_group([request])
            else:
                group[0].done.set_exception(to_store_error(error, self._path))
        except Exception as error:  # noqa: BLE001 - every caller must get a result
            self._failure = to_store_error(error, self._path)
            for request in group:
                request.done.set_exception(self._failure)
        else:
            for request in group:
                request.done.set_result(None)

    def _skip_until_resumed(self, group: Sequence[WriteRequest]) -> Sequence[WriteRequest]:
        """After a failure, fail the requests before the next `resume` and return the rest."""
        for index, request in enumerate(group):
            if self._failure is None or request.resumes:
                self._failure = None
                return group[index:]
            request.done.set_exception(self._failure)
        return ()

    def _commit(self, group: Sequence[WriteRequest]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._verify()
            for request in group:
                if request.resumes:
                    self._try_to_write()
                for sql, rows in request.statements:
                    connection.executemany(sql, rows)
            connection.execute("COMMIT")
            self._verify()
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _try_to_write(self) -> None:
        """Rewrite a page with the same content. Raises if the file is not writable."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        self._connection.execute(f"PRAGMA user_version = {version}")
