"""One daemon from its first breath to its last: lock, store, engine, kernel, doors."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from rota.api.app import House, create
from rota.api.auth import Doorkeeper
from rota.api.server import Patience, Server, server
from rota.config import SOCKET_NAME
from rota.core.commands import Command
from rota.core.model import Job
from rota.core.view import Rules
from rota.daemon import checkpoints
from rota.daemon.admission import Defaults
from rota.daemon.cards import Cards
from rota.daemon.checkpoints import Checkpoints
from rota.daemon.desk import Desk
from rota.daemon.launches import Launches, Site
from rota.daemon.machine import Address, Machine, Setup
from rota.daemon.membership import DEFAULT_CARE, Care, Membership
from rota.daemon.rendezvous import Rendezvous
from rota.daemon.shell import Parts, Shell
from rota.daemon.snapshots import Snapshots
from rota.daemon.tokens import Tokens, load_key
from rota.daemon.training import Training
from rota.daemon.visits import Visits
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import Gpus
from rota.errors import RotaError, UnavailableError
from rota.policies.registry import parse
from rota.store.sqlite import SqliteStore

log = structlog.get_logger()

DOOR_NAME = "door"
PRUNE_S = 3600.0
"""How often shipped code and logs that nobody needs any more are removed."""
SWITCH_S = 0.001
"""How soon a long decision lets the doors have the interpreter."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run. `listen` is HOST, PORT of a TCP door, if there is to be one."""

    folder: Path
    store_file: Path
    gpus: Gpus
    policy: str
    policy_file: Path
    rules: Rules
    defaults: Callable[[str], Defaults]
    admins: frozenset[str] = frozenset()
    listen: tuple[str, int] | None = None
    keep_logs_s: float = math.inf
    checkpoints: Checkpoints | None = None
    """Where jobs keep theirs; in the state folder if nothing is said."""
    care: Care = DEFAULT_CARE
    patience: Patience = field(default_factory=Patience)


async def serve(settings: Settings, *, ready: Callable[[], object]) -> None:
    """Runs until it is told to stop. `ready` is called once requests are answered."""
    sys.setswitchinterval(SWITCH_S)
    async with _house(settings) as house, _doors(settings, house):
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, house.machine.stopping.set)
        _set_aside_what_stays()
        ready()
        log.info("ready", folder=str(settings.folder), pid=os.getpid())
        await house.machine.stopping.wait()
        log.info("stopping")
        house.training.hush()
        house.rendezvous.hush()


def _set_aside_what_stays() -> None:
    """The libraries alone are about a hundred thousand objects. Looking through them for garbage,
    again and again, would each time keep everybody waiting for as long as hundreds of submits."""
    gc.collect()
    gc.freeze()


async def _prune(launches: Launches, engine: LocalEngine, *, keep_logs_s: float) -> None:
    while True:
        await asyncio.sleep(PRUNE_S)
        try:
            live = await launches.prune_snapshots()
            before_s = time.time() - keep_logs_s
            gone = await asyncio.to_thread(engine.forget_before, before_s, keep=live)
            await launches.remove_checkpoints(gone)
        except (RotaError, OSError) as error:
            log.warning("what nobody needs could not be removed", error=str(error))


def _pass_on(command: Command, *, membership: Membership, training: Training) -> None:
    """What a job's workers are told by those they report to."""
    membership.order(command)
    training.order(command)


@asynccontextmanager
async def _house(settings: Settings) -> AsyncGenerator[House]:
    store = await asyncio.to_thread(SqliteStore, settings.store_file)
    engine = LocalEngine(settings.folder / "engine", settings.gpus)
    clock = time.time
    shell = Shell(Parts(store, engine, clock, settings.rules), parse(settings.policy))
    tokens = Tokens(shell, store, key=load_key(settings.folder), clock=clock)
    tcp = _written(*settings.listen) if settings.listen else ""
    address = Address(str(settings.folder / SOCKET_NAME), tcp)
    door = settings.folder / DOOR_NAME

    def env(job: Job) -> dict[str, str]:
        """How a worker reaches us: through TCP, or its own socket."""
        url = f"http://{tcp}" if tcp else f"unix://{door / SOCKET_NAME}"
        return {"ROTA_URL": url, "ROTA_TOKEN": tokens.for_attempt(job.id, job.attempt)}

    snapshots = await asyncio.to_thread(Snapshots, settings.folder / "snapshots")
    places = settings.checkpoints or checkpoints.parse("", folder=settings.folder)
    site = Site(clock, settings.defaults, env, snapshots, places, str(door))
    membership = Membership(shell, clock=clock, care=settings.care)
    training = Training(shell, membership, clock=clock, cards=Cards(engine.held_on_cards))
    rendezvous = Rendezvous(shell, membership, clock=clock)
    desk = Desk(shell, store, site=site, training=training)
    launches = Launches(shell, store, site=site)
    setup = Setup(address, settings.policy, settings.policy_file)
    machine = Machine(desk, engine, settings.gpus, setup=setup)
    pruning = _prune(launches, engine, keep_logs_s=settings.keep_logs_s)
    work = (pruning, training.run(), training.cards.run(), membership.run(), rendezvous.run())
    chores = [asyncio.ensure_future(each) for each in work]
    try:
        await shell.start(
            launches.program, listener=partial(_pass_on, membership=membership, training=training)
        )
        doorkeeper = Doorkeeper(tokens, admins=settings.admins)
        visits = Visits(desk, engine)
        desks = (training, rendezvous)
        yield House(desk, machine, tokens, doorkeeper, visits, *desks, settings.patience)
    finally:
        await _end(chores)
        await shell.close()
        await asyncio.to_thread(store.close)


async def _end(chores: Sequence[asyncio.Future[None]]) -> None:
    for chore in chores:
        chore.cancel()
    await asyncio.gather(*chores, return_exceptions=True)


@asynccontextmanager
async def _doors(settings: Settings, house: House) -> AsyncGenerator[None]:
    app = create(house)
    paths = [settings.folder / SOCKET_NAME, _door(settings.folder) / SOCKET_NAME]
    sockets = [_unix(path) for path in paths]
    if settings.listen:
        sockets.append(_tcp(*settings.listen))
    front = server(app, patience=settings.patience)
    running = asyncio.ensure_future(front.serve(sockets=sockets))
    try:
        await _started(front, running)
        yield
    finally:
        front.should_exit = True
        await running
        for path in paths:
            path.unlink(missing_ok=True)


async def _started(front: Server, running: asyncio.Future[None]) -> None:
    while not front.started:
        if running.done():
            running.result()
        await asyncio.sleep(0.005)


def _door(folder: Path) -> Path:
    """A folder with nothing but a socket in it. A container is shown the folder: a socket alone
    would be lost to it when we start again and make another."""
    door = folder / DOOR_NAME
    door.mkdir(exist_ok=True)
    door.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return door


def _unix(path: Path) -> socket.socket:
    """Root's socket is open to all, and the kernel tells who comes; anybody else's is private."""
    with suppress(FileNotFoundError):
        path.unlink()
    door = socket.socket(socket.AF_UNIX)
    try:
        door.bind(str(path))
    except OSError as error:
        hint = "choose a shorter ROTA_HOME" if "too long" in str(error) else ""
        raise UnavailableError(f"{path}: {error.strerror or error}", hint) from None
    path.chmod(0o666 if os.geteuid() == 0 else 0o600)
    return door


def _written(host: str, port: int) -> str:
    """As in a URL, where an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tcp(host: str, port: int) -> socket.socket:
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise UnavailableError(what, "choose another --listen") from None
    return door
