"""The move journal on a cluster: a Kubernetes Secret, so that another replica can continue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

import structlog

from rota.core.model.job import JobId
from rota.daemon.migration.requests import Move
from rota.errors import UserError
from rota.wire.codec import dump, load

log = structlog.get_logger()

SECRET = "rota-moves"  # noqa: S105 - a name
MOST_BYTES = 900_000
"""A Secret can hold one MiB."""


class SecretPort(Protocol):
    async def contents(self) -> dict[str, bytes]: ...

    async def put(self, contents: Mapping[str, bytes | None]) -> None: ...


class SecretMoveJournal:
    """Implements `rota.daemon.migration.requests.MoveJournal`."""

    def __init__(self, secret: SecretPort) -> None:
        self._secret = secret
        self._bytes: dict[str, int] = {}

    async def load(self) -> list[Move]:
        found: list[Move] = []
        for name, content in (await self._secret.contents()).items():
            self._bytes[name] = len(content)
            try:
                found.append(load(Move, json.loads(content)))
            except (ValueError, TypeError, AttributeError):
                # The content is not logged: it may be a token.
                log.error("move journal entry unreadable, ignored", key=name)
        return found

    async def save(self, *moves: Move) -> None:
        contents = {str(move.job_id): dump(move).encode() for move in moves}
        sizes = self._bytes | {name: len(content) for name, content in contents.items()}
        if sum(sizes.values()) > MOST_BYTES:
            what = "too many planned moves: the cluster's move journal is full"
            raise UserError(what, "wait until some jobs have moved, or use 'rota resubmit --to'")
        await self._secret.put(contents)
        self._bytes = sizes

    async def forget(self, job_id: JobId) -> None:
        await self._secret.put({str(job_id): None})
        self._bytes.pop(str(job_id), None)
