"""What a daemon is put together from, which differs with where its jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rota.api.auth import Strangers
from rota.config import SOCKET_NAME
from rota.core.model import JobId
from rota.daemon.checkpoints import Checkpoints
from rota.daemon.desk import Desk
from rota.daemon.move_files import MoveKeeper
from rota.daemon.premises import Premises, ThisMachine
from rota.daemon.snapshots import Snapshots
from rota.daemon.tokens import load_key
from rota.engines.base import Engine, WorkerId
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import Gpus, Reading
from rota.store.base import Store
from rota.store.sqlite import SqliteStore

DOOR_NAME = "door"

Chore = Coroutine[None, None, None]


class ForgetfulEngine(Engine, Protocol):
    def forget_before(self, before_s: float, *, keep: Collection[JobId]) -> Collection[JobId]:
        """Logs and all else of jobs that ended before then; which these were. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class Ground:
    """What every place is made on. `tcp` is where we listen, if we do."""

    folder: Path
    store_file: Path
    tcp: str
    snapshots: Snapshots


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    """Of its engine."""
    store: Store
    engine: ForgetfulEngine
    premises: Premises
    key: bytes
    """With which the tokens of jobs are made."""
    url: str
    """Where workers reach us."""
    lost: asyncio.Future[None]
    """Fails when this daemon may no longer command, or no longer sees what it commands."""
    has_stand_ins: bool
    """Whether others take over from one that ends: then one that has broken down does."""
    chores: Callable[[Desk], Sequence[Chore]]
    """What else is to be done, once there is a desk."""
    readings: Callable[[], Sequence[Reading]] = tuple
    """Of the GPUs of this machine."""
    held_on_cards: Callable[[], Mapping[WorkerId, int]] = dict
    """Which worker holds how much of the memory of GPUs, where the driver can be asked."""
    cards: Callable[[WorkerId], Sequence[str]] = lambda _: ()
    """Which GPUs a worker was given, where its node picks them."""
    moves: MoveKeeper | None = None
    """What remembers planned moves, if not files in our folder."""
    strangers: Strangers | None = None
    """Who knows whose tokens those are that are not ours."""


Opens = Callable[[Ground], AbstractAsyncContextManager[Place]]


@asynccontextmanager
async def this_machine(
    ground: Ground, *, gpus: Gpus, checkpoints: Checkpoints
) -> AsyncGenerator[Place]:
    """Workers are processes here."""
    store = await asyncio.to_thread(SqliteStore, ground.store_file)
    door = ground.folder / DOOR_NAME
    engine = LocalEngine(ground.folder / "engine", gpus)
    try:
        yield Place(
            name="local",
            store=store,
            engine=engine,
            premises=ThisMachine(ground.snapshots, checkpoints, str(door)),
            key=load_key(ground.folder),
            url=f"http://{ground.tcp}" if ground.tcp else f"unix://{door / SOCKET_NAME}",
            readings=gpus.read,
            lost=asyncio.get_running_loop().create_future(),
            has_stand_ins=False,
            chores=lambda _: (),
            held_on_cards=engine.held_on_cards,
        )
    finally:
        await asyncio.to_thread(store.close)
