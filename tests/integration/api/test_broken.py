"""A daemon in which something died that should go on for ever."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from structlog.testing import capture_logs

import rota.api.serve
from rota.api.places import ForgetfulEngine, Ground, Place
from rota.api.serve import Settings, serve
from rota.api.server import Patience
from rota.daemon import cards
from rota.daemon.move_files import MoveKeeper
from rota.errors import UnavailableError
from tests.integration.api.daemon import settings
from tests.integration.api.house import LONG, PATIENCE_S, SLEEP

BUG = "a bug in rota (KeyError)"

Change = Callable[[Place], Place]
Visit = Callable[[httpx2.AsyncClient], Awaitable[None]]


async def dies() -> None:
    raise KeyError("x")


class Forgetful:
    """A keeper of planned moves that does not come to begin."""

    async def load(self) -> None:
        raise KeyError("x")


class Engine:
    """Like the one it is made from, but that there is a bug in one of its deeds."""

    def __init__(self, found: ForgetfulEngine) -> None:
        self._found = found
        self.n_times = 0
        self.has_come_twice = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def forget_before(self, *_: Any, **__: Any) -> None:
        self.stumble()

    def stumble(self) -> None:
        self.n_times += 1
        if self.n_times == 2:
            self._loop.call_soon_threadsafe(self.has_come_twice.set)
        raise KeyError("x")


def in_a_chore(place: Place) -> Place:
    return replace(place, chores=lambda _: (dies(),))


def in_moves(place: Place) -> Place:
    return replace(place, moves=cast("MoveKeeper", Forgetful()))


def changed(folder: Path, change: Change) -> Settings:
    made = settings(folder, 0, patience=Patience(*LONG))

    @asynccontextmanager
    async def place(ground: Ground) -> AsyncGenerator[Place]:
        async with made.place(ground) as found:
            yield change(found)

    return replace(made, place=place, listen=None)


async def visited(chosen: Settings, visit: Visit) -> None:
    ready = asyncio.Event()
    running = asyncio.ensure_future(serve(chosen, ready=ready.set))
    transport = httpx2.AsyncHTTPTransport(uds=str(chosen.folder / "rota.sock"))
    async with (
        asyncio.timeout(PATIENCE_S),
        httpx2.AsyncClient(transport=transport, base_url="http://rota") as client,
    ):
        await ready.wait()
        await visit(client)
        await client.post("/v1/stop")
        await running


@pytest.mark.parametrize("where", [in_a_chore, in_moves])
def test_where_another_takes_over_it_ends_with_the_reason(tmp_path: Path, where: Change) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S):
            chosen = changed(tmp_path, lambda place: replace(where(place), has_stand_ins=True))
            await serve(chosen, ready=lambda: None)

    with pytest.raises(UnavailableError, match=r"a bug in rota \(KeyError\)"):
        asyncio.run(scenario())


@pytest.mark.parametrize("where", [in_a_chore, in_moves])
def test_where_nobody_does_it_tells_whoever_asks(tmp_path: Path, where: Change) -> None:
    async def visit(client: httpx2.AsyncClient) -> None:
        answer = await client.get("/healthz")
        status = await client.get("/v1/status")
        assert answer.status_code == 503
        assert BUG in answer.json()["reason"]
        assert BUG in status.json()["trouble"]

    with capture_logs() as lines:
        asyncio.run(visited(changed(tmp_path, where), visit))
    [died] = [each for each in lines if "died" in each["event"]]
    assert died["exc_info"].__traceback__ is not None


def test_what_nobody_rests_upon_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rota.api.serve, "PRUNE_S", 0.0)
    monkeypatch.setattr(cards, "LOOK_S", 0.0)
    engines: list[Engine] = []

    def change(place: Place) -> Place:
        engines[:] = Engine(place.engine), Engine(place.engine)
        engine = cast("ForgetfulEngine", engines[0])
        look = cast("Callable[[], dict[Any, int]]", engines[1].stumble)
        return replace(place, engine=engine, held_on_cards=look)

    async def visit(client: httpx2.AsyncClient) -> None:
        for each in engines:
            await each.has_come_twice.wait()
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post("/v1/jobs", json=SLEEP | {"hold": True})).status_code == 201

    with capture_logs() as lines:
        asyncio.run(visited(changed(tmp_path, change), visit))
    told = [each["event"] for each in lines if each["log_level"] == "error"]
    assert "what nobody needs could not be removed" in told
    assert told.count("the memory of the GPUs could not be looked at") == 1
