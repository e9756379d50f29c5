"""The move journal on one machine: one file per planned or running move, readable only by us.

The journal is separate from the store because each move holds a user's token: a deleted file is
gone, and backups of the store do not contain it. On a cluster see `secret_journal`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from rota.config.atomic_file import replace_file
from rota.core.model.job import JobId
from rota.daemon.artifacts.fsutil import make_folder, sync
from rota.daemon.migration.requests import Move
from rota.thread_pools import STORE
from rota.wire.codec import dump, load

log = structlog.get_logger()


class FileMoveJournal:
    """Implements `rota.daemon.migration.requests.MoveJournal`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def load(self) -> list[Move]:
        return await STORE.run(lambda: list(self._load()))

    async def save(self, *moves: Move) -> None:
        await STORE.run(self._save, moves)

    async def forget(self, job_id: JobId) -> None:
        await STORE.run(self._forget, job_id)

    def _load(self) -> Iterator[Move]:
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield load(Move, json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, TypeError, AttributeError, RecursionError, IsADirectoryError):
                # The content is not logged: it may be a token.
                log.error("move journal entry unreadable, ignored", file=str(path))

    def _save(self, moves: Iterable[Move]) -> None:
        make_folder(self._folder, 0o700)
        for move in moves:
            replace_file(self._path(move.job_id), dump(move))
        sync(self._folder)

    def _forget(self, job_id: JobId) -> None:
        self._path(job_id).unlink(missing_ok=True)
        sync(self._folder)

    def _path(self, job_id: JobId) -> Path:
        return self._folder / f"{job_id}.json"
