"""A Secret that somebody deletes under whoever rests upon it."""

import asyncio
from typing import cast

import pytest

from rota.engines.kubernetes.api import ApiError, Cluster, Kind, Object
from rota.engines.kubernetes.drawer import Drawer

NAME = "rota-state"
ALL = {"key": b"k", "token.ada": b"t"}


class Secrets:
    def __init__(self) -> None:
        self.found: dict[str, Object] = {}

    async def get(self, _: Kind, name: str) -> Object:
        return self._known(name)

    async def patch(self, _: Kind, name: str, *, body: Object) -> Object:
        merged = {**self._known(name).get("data", {}), **body["data"]}
        kept = {each: value for each, value in merged.items() if value is not None}
        self.found[name] = {**self.found[name], "data": kept}
        return self.found[name]

    async def create(self, _: Kind, body: Object) -> Object:
        return self.found.setdefault(body["metadata"]["name"], body)

    def _known(self, name: str) -> Object:
        if name not in self.found:
            raise ApiError(404, "NotFound", "no such secret")
        return self.found[name]


def drawer(secrets: Secrets, mark: str = "key") -> Drawer:
    return Drawer(cast(Cluster, secrets), NAME, mark=mark)


@pytest.mark.parametrize("left", [None, {}, {"key": "b3RoZXI="}, {"token.ada": "dA=="}])
def test_what_was_deleted_or_emptied_is_put_back_as_it_was(left: Object | None) -> None:
    async def scenario() -> None:
        secrets = Secrets()
        ours = drawer(secrets)
        await ours.put(ALL)
        await ours.put({"later": b"l", "token.ada": b"u"})
        if left is None:
            del secrets.found[NAME]
        else:
            secrets.found[NAME]["data"] = left
        told = await ours.contents()
        assert told == {"key": b"k", "token.ada": b"u", "later": b"l"}
        assert await drawer(secrets).contents() == told

    asyncio.run(scenario())


def test_what_is_put_into_one_that_was_deleted_comes_with_the_rest() -> None:
    async def scenario() -> None:
        secrets = Secrets()
        await drawer(secrets).put(ALL)
        ours = drawer(secrets)
        await ours.contents()
        del secrets.found[NAME]
        await ours.put({"later": b"l", "token.ada": None})
        assert await drawer(secrets).contents() == {"key": b"k", "later": b"l"}

    asyncio.run(scenario())


def test_what_somebody_takes_out_of_it_stays_out() -> None:
    async def scenario() -> None:
        secrets = Secrets()
        ours = drawer(secrets)
        await ours.put(ALL)
        del secrets.found[NAME]["data"]["token.ada"]
        assert await ours.contents() == {"key": b"k"}
        del secrets.found[NAME]
        assert await ours.contents() == {"key": b"k"}

    asyncio.run(scenario())


def test_one_without_a_mark_is_not_put_back() -> None:
    async def scenario() -> None:
        secrets = Secrets()
        ours = drawer(secrets, mark="")
        await ours.put(ALL)
        assert await ours.contents() == ALL
        del secrets.found[NAME]
        assert await ours.contents() == {}
        await ours.look()

    asyncio.run(scenario())
