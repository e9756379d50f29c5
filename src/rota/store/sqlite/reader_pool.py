"""Connections that only read. Each is used by one thread at a time, and kept for the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from rota.errors import StoreError, Trouble
from rota.store.connect import READ_ONLY, connect
from rota.store.faults import faults


class Readers:
    """As many connections as there were readers at once."""

    def __init__(self, path: Path, *, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        self._lock = Lock()

    @contextmanager
    def one(self) -> Generator[sqlite3.Connection]:
        """For one question."""
        with faults(self._path):
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """For several questions, whose answers belong together."""
        with self.one() as connection:
            connection.execute("BEGIN")
            yield connection

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._is_closed:
                raise StoreError(Trouble.CLOSED, f"{self._path}: it has been closed")
            if self._idle:
                return self._idle.pop()
        return connect(self._path, READ_ONLY, busy_s=self._busy_s)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
