"""A daemon in which something died that should go on for ever."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from rota.api.places import Ground, Place
from rota.api.serve import Settings, serve
from rota.api.server import Patience
from rota.errors import UnavailableError
from tests.integration.api.daemon import settings
from tests.integration.api.house import LONG

BUG = "a bug in rota (KeyError)"


async def dies() -> None:
    raise KeyError("x")


def broken(folder: Path, *, has_stand_ins: bool) -> Settings:
    made = settings(folder, 0, patience=Patience(*LONG))

    @asynccontextmanager
    async def place(ground: Ground) -> AsyncGenerator[Place]:
        async with made.place(ground) as found:
            yield replace(found, has_stand_ins=has_stand_ins, chores=lambda _: (dies(),))

    return replace(made, place=place, listen=None)


def test_where_another_takes_over_it_ends_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"a bug in rota \(KeyError\)"):
        asyncio.run(serve(broken(tmp_path, has_stand_ins=True), ready=lambda: None))


def test_where_nobody_does_it_tells_whoever_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        ready = asyncio.Event()
        running = asyncio.ensure_future(
            serve(broken(tmp_path, has_stand_ins=False), ready=ready.set)
        )
        await ready.wait()
        transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "rota.sock"))
        async with httpx2.AsyncClient(transport=transport, base_url="http://rota") as client:
            answer = await client.get("/healthz")
            status = await client.get("/v1/status")
            await client.post("/v1/stop")
        await running
        assert answer.status_code == 503
        assert BUG in answer.json()["reason"]
        assert BUG in status.json()["trouble"]

    asyncio.run(scenario())
