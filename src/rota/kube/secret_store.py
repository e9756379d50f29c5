"""A Secret of ours: small texts by name, which every replica of the daemon has to know."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping

import structlog

from rota.engines.kubernetes.api import SECRETS, ApiError, Cluster, Object
from rota.engines.kubernetes.objects import part

log = structlog.get_logger()


class Drawer:
    """Nobody needs it before something is put into it. What has a `mark` in it never changes that:
    if it is gone, or another, somebody took it away, and all that we know of it is put back."""

    def __init__(self, cluster: Cluster, name: str, *, mark: str = "") -> None:
        self._cluster, self._name, self._mark = cluster, name, mark
        self._known: dict[str, bytes] = {}
        """All that is in it, if it has its mark."""
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        """Raises if it is out of reach."""
        await self._secret()

    async def contents(self) -> dict[str, bytes]:
        """What somebody wrote into it by hand, and cannot be read, is left out."""
        async with self._turn:
            found = await self._read()
            if self._known and found.get(self._mark) != self._known[self._mark]:
                log.warning("somebody took a secret of ours away; it is put back", name=self._name)
                await self._put(self._known)
            elif self._mark in found:
                self._known = found
            return dict(self._known or found)

    async def put(self, contents: Mapping[str, bytes | None]) -> None:
        """None takes it out."""
        async with self._turn:
            await self._put(contents)

    async def _read(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name, value in part(await self._secret(), "data").items():
            try:
                found[name] = base64.b64decode(str(value), validate=True)
            except binascii.Error:
                log.error("what is in a secret cannot be read", secret=self._name, key=name)
        return found

    async def _put(self, contents: Mapping[str, bytes | None]) -> None:
        both = {**self._known, **contents}
        whole = {name: content for name, content in both.items() if content is not None}
        try:
            await self._cluster.patch(SECRETS, self._name, body={"data": _packed(contents)})
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            body = {"metadata": {"name": self._name}, "data": _packed(whole)}
            await self._cluster.create(SECRETS, body)
        if self._mark in whole:
            self._known = whole

    async def _secret(self) -> Object:
        try:
            return await self._cluster.get(SECRETS, self._name)
        except ApiError as error:
            if error.reason == "NotFound":
                return {}
            raise


def _packed(contents: Mapping[str, bytes | None]) -> dict[str, str | None]:
    return {
        name: None if content is None else base64.b64encode(content).decode()
        for name, content in contents.items()
    }
