"""Commands beside workers and connections to their ports, each over a WebSocket of its own.

Who may not, is told before the socket is opened; what goes wrong after that comes as a note.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Query, WebSocket
from starlette.websockets import WebSocketDisconnect

from rota.api.answers import Reaches, Word
from rota.api.auth import Asks
from rota.api.carry import carry, parsed
from rota.daemon.visits import Place
from rota.errors import RotaError
from rota.wire.box import Problem
from rota.wire.json import dump
from rota.wire.sessions import Entry, Note

router = APIRouter(prefix="/v1/jobs/{word}")

HIGHEST_PORT = 65535
FIRST_WORD_S = 30.0
"""How long a client may take to say what to run."""


async def _place(
    word: Word,
    house: Reaches,
    caller: Asks,
    *,
    worker: Annotated[int | None, Query(ge=0, le=100_000)] = None,
) -> Place:
    return house.visits.place(caller, word, worker=worker)


There = Annotated[Place, Depends(_place)]


@router.websocket("/exec")
async def execute(socket: WebSocket, house: Reaches, *, place: There) -> None:
    """Run a command beside a worker: its rights, folder, environment, GPUs and container."""
    async with _opened(socket):
        async with asyncio.timeout(FIRST_WORD_S):
            entry = parsed(Entry, await socket.receive_text())
        async with house.visits.command(place, entry) as session:
            await carry(socket, session)


@router.websocket("/forward")
async def forward(
    socket: WebSocket,
    house: Reaches,
    *,
    place: There,
    port: Annotated[int, Query(ge=1, le=HIGHEST_PORT)],
) -> None:
    """One connection to a port of 127.0.0.1, as a worker sees it."""
    async with _opened(socket), house.visits.connection(place, port) as session:
        await carry(socket, session)


@asynccontextmanager
async def _opened(socket: WebSocket) -> AsyncGenerator[None]:
    await socket.accept()
    try:
        yield
    except (WebSocketDisconnect, TimeoutError, KeyError):
        # Gone, silent, or not speaking in text: nobody to talk to.
        pass
    except RotaError as error:
        problem = Problem(error.code, error.message, error.hint)
        with suppress(WebSocketDisconnect):
            await socket.send_text(dump(Note(problem=problem)))
    with suppress(WebSocketDisconnect, RuntimeError):
        await socket.close()
