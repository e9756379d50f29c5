"""Small named values in one Secret, shared by all replicas of the daemon."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping

import structlog

from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.resources import SECRETS, Object, part

log = structlog.get_logger()


class SecretStore:
    """Creates the Secret with the first value. `mark` names a value that never changes after it
    was written: if it is missing or different, the Secret was deleted or replaced, and all known
    values are written again."""

    def __init__(self, client: KubeClient, name: str, *, mark: str = "") -> None:
        self._client, self._name, self._mark = client, name, mark
        self._known: dict[str, bytes] = {}
        """All values, if the mark is among them."""
        self._lock = asyncio.Lock()

    async def check(self) -> None:
        """Raise if the Secret cannot be read."""
        await self._secret()

    async def contents(self) -> dict[str, bytes]:
        """All values. Values that are not valid base64 are left out."""
        async with self._lock:
            found = await self._read()
            if self._known and found.get(self._mark) != self._known[self._mark]:
                log.warning("secret was deleted or replaced; restoring it", name=self._name)
                await self._put(self._known)
            elif self._mark in found:
                self._known = found
            return dict(self._known or found)

    async def put(self, contents: Mapping[str, bytes | None]) -> None:
        """Write values; None deletes one."""
        async with self._lock:
            await self._put(contents)

    async def _read(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name, value in part(await self._secret(), "data").items():
            try:
                found[name] = base64.b64decode(str(value), validate=True)
            except binascii.Error:
                log.error("value in a secret is not valid base64", secret=self._name, key=name)
        return found

    async def _put(self, contents: Mapping[str, bytes | None]) -> None:
        values = {**self._known, **contents}
        merged = {name: content for name, content in values.items() if content is not None}
        try:
            await self._client.patch(SECRETS, self._name, body={"data": _encoded(contents)})
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            body = {"metadata": {"name": self._name}, "data": _encoded(merged)}
            await self._client.create(SECRETS, body)
        if self._mark in merged:
            self._known = merged

    async def _secret(self) -> Object:
        try:
            return await self._client.get(SECRETS, self._name)
        except ApiError as error:
            if error.reason == "NotFound":
                return {}
            raise


def _encoded(contents: Mapping[str, bytes | None]) -> dict[str, str | None]:
    return {
        name: None if content is None else base64.b64encode(content).decode()
        for name, content in contents.items()
    }
