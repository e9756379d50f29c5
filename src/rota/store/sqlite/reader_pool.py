"""A pool of read-only connections. One thread at a time uses a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from rota.store.sqlite.connect import READ_ONLY, connect
from rota.store.sqlite.errors import as_store_errors, closed


class ReaderPool:
    """Opens a connection when none is idle, so its size is the peak number of parallel readers."""

    def __init__(self, path: Path, *, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        self._lock = Lock()

    @contextmanager
    def reader(self) -> Generator[sqlite3.Connection]:
        """A connection for a single query."""
        with as_store_errors(self._path):
            connection = self._acquire()
            try:
                yield connection
            finally:
                self._release(connection)

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """A connection in a read transaction: several queries see the same state."""
        with self.reader() as connection:
            connection.execute("BEGIN")
            yield connection

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _acquire(self) -> sqlite3.Connection:
        with self._lock:
            if self._is_closed:
                raise closed(self._path)
            if self._idle:
                return self._idle.pop()
        return connect(self._path, READ_ONLY, busy_s=self._busy_s)

    def _release(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
