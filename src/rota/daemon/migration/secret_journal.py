"""Moves that are planned or under way, on a cluster: in a Secret, so that the next daemon has them
although its disk is empty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

import structlog

from rota.core.model import JobId
from rota.daemon.move_files import Move
from rota.errors import UserError
from rota.wire.json import dump, load

log = structlog.get_logger()

SECRET = "rota-moves"
MOST_BYTES = 900_000
"""A Secret takes a MiB."""


class Drawer(Protocol):
    async def contents(self) -> dict[str, bytes]: ...

    async def put(self, contents: Mapping[str, bytes | None]) -> None: ...


class MoveSecret:
    """Satisfies `rota.daemon.move_files.MoveKeeper`."""

    def __init__(self, drawer: Drawer) -> None:
        self._drawer = drawer
        self._bytes: dict[str, int] = {}

    async def load(self) -> list[Move]:
        found: list[Move] = []
        for name, content in (await self._drawer.contents()).items():
            self._bytes[name] = len(content)
            try:
                found.append(load(Move, json.loads(content)))
            except (ValueError, TypeError, AttributeError):
                # Its words are not repeated: they may be a token.
                log.error("a planned move cannot be read, and is left alone", key=name)
        return found

    async def save(self, *moves: Move) -> None:
        contents = {str(move.job_id): dump(move).encode() for move in moves}
        sizes = self._bytes | {name: len(content) for name, content in contents.items()}
        if sum(sizes.values()) > MOST_BYTES:
            what = "as many jobs are to be moved already as a cluster can remember"
            raise UserError(what, "wait until some have moved, or use 'rota resubmit --to'")
        await self._drawer.put(contents)
        self._bytes = sizes

    async def forget(self, job_id: JobId) -> None:
        await self._drawer.put({str(job_id): None})
        self._bytes.pop(str(job_id), None)
