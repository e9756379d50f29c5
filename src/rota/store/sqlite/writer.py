"""The one thread that writes: many batches share one commit, and one wait for the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic

from rota.errors import StoreError, Trouble
from rota.store.faults import REFUSALS, explained

GROUP_MAX = 1000
LINGER_S = 0.001
"""How long a commit waits for as many batches as the one before it had. Those who were answered
together come back together; without this, every second commit would carry only the fastest."""

Value = str | int | float | None
Values = Sequence[Value]
Statement = tuple[str, Sequence[Values]]


@dataclass(frozen=True, slots=True)
class Work:
    """Statements that succeed or fail together, and who waits for them."""

    statements: Sequence[Statement]
    done: Future[None] = field(default_factory=Future[None])
    resumes: bool = False
    """Whether writing goes on from here after a failure."""


class Writer:
    """Owns the connection. `is_sound` raises when a commit could not be relied upon."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, is_sound: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._is_sound = is_sound
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._entry = Lock()
        self._is_closed = False
        self._last_size = 1
        self._failure: StoreError | None = None
        """Why a commit failed. What was handed in after it may rest upon it, and fails, too."""
        self._thread = Thread(target=self._run, name="rota-store-writer", daemon=True)
        self._thread.start()

    def write(self, statements: Sequence[Statement]) -> Future[None]:
        return self._hand_in(Work(statements))

    def resume(self) -> Future[None]:
        """Take on work again after a failure, if the file can be written."""
        return self._hand_in(Work((), resumes=True))

    def _hand_in(self, work: Work) -> Future[None]:
        # It cannot be called back from here on: who stops waiting must not stop the writer.
        work.done.set_running_or_notify_cancel()
        with self._entry:
            if self._is_closed:
                raise StoreError(Trouble.CLOSED, f"{self._path}: it has been closed")
            self._queue.put(work)
        return work.done

    def close(self) -> None:
        """Write what was handed in, then let go of the file."""
        with self._entry:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            if group:
                self._write_group(group)
        self._connection.close()

    def _next_group(self) -> tuple[list[Work], bool]:
        """Waits for one batch, then takes all that are there or come within a moment."""
        group: list[Work] = []
        work = self._queue.get()
        deadline = monotonic() + LINGER_S
        while work is not None:
            group.append(work)
            if len(group) == GROUP_MAX:
                break
            left_s = deadline - monotonic() if len(group) < self._last_size else 0.0
            try:
                work = self._queue.get(timeout=left_s) if left_s > 0 else self._queue.get_nowait()
            except Empty:
                break
        self._last_size = max(1, len(group))
        return group, work is not None

    def _write_group(self, group: Sequence[Work]) -> None:
        group = self._without_the_lost(group)
        if not group:
            return
        try:
            self._commit(group)
        except REFUSALS as error:
            if len(group) > 1:
                # One of them is at fault; alone, each gets its own answer.
                for work in group:
                    self._write_group([work])
            else:
                group[0].done.set_exception(explained(error, self._path))
        except Exception as error:  # noqa: BLE001 - whoever waits gets an answer, whatever it is
            self._failure = explained(error, self._path)
            for work in group:
                work.done.set_exception(self._failure)
        else:
            for work in group:
                work.done.set_result(None)

    def _without_the_lost(self, group: Sequence[Work]) -> Sequence[Work]:
        """After a failure: what comes from the moment on at which writing goes on."""
        for place, work in enumerate(group):
            if self._failure is None or work.resumes:
                self._failure = None
                return group[place:]
            work.done.set_exception(self._failure)
        return ()

    def _commit(self, group: Sequence[Work]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._is_sound()
            for work in group:
                if work.resumes:
                    self._try_to_write()
                for sql, rows in work.statements:
                    connection.executemany(sql, rows)
            connection.execute("COMMIT")
            self._is_sound()
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _try_to_write(self) -> None:
        """Writes a page as it is."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        self._connection.execute(f"PRAGMA user_version = {version}")
