"""Moves that are planned or under way, on disk: one file each, for our eyes only.

Apart from the store, because each holds a token of somebody's: a file is gone when it is removed,
and no backup of the store takes it along. On a cluster another daemon goes on with them, so that
they are kept elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from rota.config.files import replace_file
from rota.core.model import JobId
from rota.daemon.disk import make_folder, sync
from rota.wire.json import dump, load

log = structlog.get_logger()

WAITS, GOES, SENT = "waits", "goes", "sent"
"""Not yet due; held here, to be handed over; handed over, and on hold there."""


@dataclass(frozen=True, slots=True)
class Target:
    """Another daemon: what the job's owner calls it, where it is, what opens it."""

    to: str
    url: str
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Move:
    job_id: JobId
    user: str
    target: Target
    due_s: float
    step: str = WAITS
    sent_as: str = ""
    """The id that it has there."""


class MoveKeeper(Protocol):
    async def load(self) -> list[Move]: ...

    async def save(self, *moves: Move) -> None: ...

    async def forget(self, job_id: JobId) -> None: ...


class MoveFiles:
    """Satisfies `MoveKeeper`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def load(self) -> list[Move]:
        return await asyncio.to_thread(lambda: list(self._load()))

    async def save(self, *moves: Move) -> None:
        await asyncio.to_thread(self._save, moves)

    async def forget(self, job_id: JobId) -> None:
        await asyncio.to_thread(self._forget, job_id)

    def _load(self) -> Iterator[Move]:
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield load(Move, json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, TypeError, AttributeError):
                # Its words are not repeated: they may be a token.
                log.error("a planned move cannot be read, and is left alone", file=str(path))

    def _save(self, moves: Iterable[Move]) -> None:
        make_folder(self._folder, 0o700)
        for move in moves:
            replace_file(self._place(move.job_id), dump(move))
        sync(self._folder)

    def _forget(self, job_id: JobId) -> None:
        self._place(job_id).unlink(missing_ok=True)
        sync(self._folder)

    def _place(self, job_id: JobId) -> Path:
        return self._folder / f"{job_id}.json"
