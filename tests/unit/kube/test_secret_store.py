"""A Secret that is deleted while a daemon needs it."""

import asyncio
from typing import cast

import pytest

from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.resources import Object, ResourceKind
from rota.kube.secret_store import SecretStore

NAME = "rota-state"
ALL = {"key": b"k", "token.ada": b"t"}


class Secrets:
    def __init__(self) -> None:
        self.found: dict[str, Object] = {}

    async def get(self, _: ResourceKind, name: str) -> Object:
        return self._known(name)

    async def patch(self, _: ResourceKind, name: str, *, body: Object) -> Object:
        merged = {**self._known(name).get("data", {}), **body["data"]}
        kept = {each: value for each, value in merged.items() if value is not None}
        self.found[name] = {**self.found[name], "data": kept}
        return self.found[name]

    async def create(self, _: ResourceKind, body: Object) -> Object:
        return self.found.setdefault(body["metadata"]["name"], body)

    def _known(self, name: str) -> Object:
        if name not in self.found:
            raise ApiError(404, "NotFound", "no such secret")
        return self.found[name]


def secret_store(secrets: Secrets, mark: str = "key") -> SecretStore:
    return SecretStore(cast(KubeClient, secrets), NAME, mark=mark)


@pytest.mark.parametrize("left", [None, {}, {"key": "b3RoZXI="}, {"token.ada": "dA=="}])
def test_a_deleted_or_emptied_secret_is_restored(left: Object | None) -> None:
    async def scenario() -> None:
        secrets = Secrets()
        ours = secret_store(secrets)
        await ours.put(ALL)
        await ours.put({"later": b"l", "token.ada": b"u"})
        if left is None:
            del secrets.found[NAME]
        else:
            secrets.found[NAME]["data"] = left
        told = await ours.contents()
        assert told == {"key": b"k", "token.ada": b"u", "later": b"l"}
        assert await secret_store(secrets).contents() == told

    asyncio.run(scenario())


def test_a_write_to_a_deleted_secret_restores_all_values() -> None:
    async def scenario() -> None:
        secrets = Secrets()
        await secret_store(secrets).put(ALL)
        ours = secret_store(secrets)
        await ours.contents()
        del secrets.found[NAME]
        await ours.put({"later": b"l", "token.ada": None})
        assert await secret_store(secrets).contents() == {"key": b"k", "later": b"l"}

    asyncio.run(scenario())


def test_a_value_that_was_removed_by_hand_stays_removed() -> None:
    async def scenario() -> None:
        secrets = Secrets()
        ours = secret_store(secrets)
        await ours.put(ALL)
        del secrets.found[NAME]["data"]["token.ada"]
        assert await ours.contents() == {"key": b"k"}
        del secrets.found[NAME]
        assert await ours.contents() == {"key": b"k"}

    asyncio.run(scenario())


def test_a_secret_without_a_mark_is_not_restored() -> None:
    async def scenario() -> None:
        secrets = Secrets()
        ours = secret_store(secrets, mark="")
        await ours.put(ALL)
        assert await ours.contents() == ALL
        del secrets.found[NAME]
        assert await ours.contents() == {}
        await ours.check()

    asyncio.run(scenario())
