"""A Secret of ours: small texts by name, which every replica of the daemon has to know."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import structlog

from rota.engines.kubernetes.api import SECRETS, ApiError, Cluster, Object
from rota.engines.kubernetes.objects import part

log = structlog.get_logger()


class Drawer:
    """Nobody needs it before something is put into it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name

    async def contents(self) -> dict[str, bytes]:
        """What somebody wrote into it by hand, and cannot be read, is left out."""
        found: dict[str, bytes] = {}
        for name, value in part(await self._secret(), "data").items():
            try:
                found[name] = base64.b64decode(str(value), validate=True)
            except binascii.Error:
                log.error("what is in a secret cannot be read", secret=self._name, key=name)
        return found

    async def put(self, contents: Mapping[str, bytes | None]) -> None:
        """None takes it out."""
        data = {
            name: None if content is None else base64.b64encode(content).decode()
            for name, content in contents.items()
        }
        try:
            await self._cluster.patch(SECRETS, self._name, body={"data": data})
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            kept = {name: value for name, value in data.items() if value is not None}
            await self._cluster.create(SECRETS, {"metadata": {"name": self._name}, "data": kept})

    async def _secret(self) -> Object:
        try:
            return await self._cluster.get(SECRETS, self._name)
        except ApiError as error:
            if error.reason == "NotFound":
                return {}
            raise
