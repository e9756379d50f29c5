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
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from rota.api.app import House, create
from rota.api.auth import Doorkeeper
from rota.api.carrier import HttpCarrier
from rota.api.places import DOOR_NAME, ForgetfulEngine, Ground, Opens, Place
from rota.api.server import Patience, server
from rota.api.sockets import started, tcp_socket, unix_socket, written
from rota.config import SOCKET_NAME
from rota.core.commands import Command
from rota.core.model import Job
from rota.core.view import Rules
from rota.daemon.admission import Defaults
from rota.daemon.cards import Cards
from rota.daemon.desk import Desk
from rota.daemon.launches import Launches, Site
from rota.daemon.machine import Address, Machine, Setup
from rota.daemon.membership import DEFAULT_CARE, Care, Membership
from rota.daemon.move_files import MoveFiles
from rota.daemon.move_plans import DEFAULT_LIMITS, Limits
from rota.daemon.moves import Moves
from rota.daemon.rendezvous import Rendezvous
from rota.daemon.shell import Parts, Shell
from rota.daemon.snapshots import Snapshots
from rota.daemon.tokens import Tokens
from rota.daemon.training import Training
from rota.daemon.visits import Visits
from rota.errors import RotaError, UnavailableError
from rota.policies.registry import parse

log = structlog.get_logger()

PRUNE_S = 3600.0
"""How often shipped code and logs that nobody needs any more are removed."""
SWITCH_S = 0.001
"""How soon a long decision lets the doors have the interpreter."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run. `listen` is HOST, PORT of a TCP door, if there is to be one; `place` puts
    together what differs with where jobs run; `are_accounts` tells whether jobs run as others than
    we do."""

    folder: Path
    store_file: Path
    place: Opens
    policy: str
    policy_file: Path
    rules: Rules
    defaults: Callable[[str], Defaults]
    are_accounts: bool = False
    admins: frozenset[str] = frozenset()
    listen: tuple[str, int] | None = None
    keep_logs_s: float = math.inf
    care: Care = DEFAULT_CARE
    moving: Limits = DEFAULT_LIMITS
    patience: Patience = field(default_factory=Patience)

    @property
    def tcp(self) -> str:
        return written(*self.listen) if self.listen else ""


async def serve(settings: Settings, *, ready: Callable[[], object]) -> None:
    """Runs until it is told to stop, or may no longer command. `ready` is called once requests
    are answered."""
    sys.setswitchinterval(SWITCH_S)
    with _endable():
        await _serve(settings, ready=ready)


@contextmanager
def _endable() -> Generator[None]:
    """Before it is ready, or while it waits for its turn, it ends when it is asked to: the first
    process of a container has to see to that itself."""
    loop, me, is_asked = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def end() -> None:
        if not is_asked.is_set() and me is not None:
            is_asked.set()
            me.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if not is_asked.is_set():
            raise
        log.info("ended before it was ready")


async def _serve(settings: Settings, *, ready: Callable[[], object]) -> None:
    snapshots = await asyncio.to_thread(Snapshots, settings.folder / "snapshots")
    ground = Ground(settings.folder, settings.store_file, settings.tcp, snapshots)
    async with (
        settings.place(ground) as place,
        _house(settings, place, snapshots=snapshots) as house,
        _doors(settings, house),
    ):
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, house.machine.stopping.set)
        _set_aside_what_stays()
        ready()
        log.info("ready", folder=str(settings.folder), pid=os.getpid())
        shell = house.desk.shell
        broken = shell.broken if place.has_stand_ins else asyncio.Event()
        await _end_of(house.machine.stopping, broken, lost=place.lost)
        log.info("stopping")
        house.training.hush()
        house.rendezvous.hush()
    if place.lost.done() and not place.lost.cancelled():
        place.lost.result()
    if broken.is_set():
        raise UnavailableError(shell.trouble)


async def _end_of(*events: asyncio.Event, lost: asyncio.Future[None]) -> None:
    told = [asyncio.ensure_future(each.wait()) for each in events]
    await asyncio.wait({*told, lost}, return_when=asyncio.FIRST_COMPLETED)
    for each in told:
        each.cancel()


def _set_aside_what_stays() -> None:
    """The libraries alone are about a hundred thousand objects. Looking through them for garbage,
    again and again, would each time keep everybody waiting for as long as hundreds of submits."""
    gc.collect()
    gc.freeze()


async def _prune(launches: Launches, engine: ForgetfulEngine, *, keep_logs_s: float) -> None:
    """Nobody's job rests upon this: it is tried again, whatever comes."""
    while True:
        await asyncio.sleep(PRUNE_S)
        try:
            live = await launches.prune_snapshots()
            before_s = time.time() - keep_logs_s
            gone = await asyncio.to_thread(engine.forget_before, before_s, keep=live)
            await launches.remove_checkpoints(gone)
        except (RotaError, OSError) as error:
            log.warning("what nobody needs could not be removed", error=str(error))
        except Exception:
            log.exception("what nobody needs could not be removed")


def _pass_on(command: Command, *, membership: Membership, training: Training) -> None:
    """What a job's workers are told by those they report to."""
    membership.order(command)
    training.order(command)


@asynccontextmanager
async def _house(
    settings: Settings, place: Place, *, snapshots: Snapshots
) -> AsyncGenerator[House]:
    store, engine, clock = place.store, place.engine, time.time
    shell = Shell(Parts(store, engine, clock, settings.rules), parse(settings.policy))
    tokens = Tokens(shell, store, key=place.key, clock=clock)
    env = partial(_env, url=place.url, tokens=tokens)
    site = Site(clock, settings.defaults, env, snapshots, place.premises)
    membership = Membership(shell, clock=clock, care=settings.care)
    cards = Cards(place.held_on_cards)
    training = Training(shell, membership, clock=clock, cards=cards)
    rendezvous = Rendezvous(shell, membership, clock=clock)
    desk = Desk(shell, store, site=site, training=training)
    launches = Launches(shell, store, site=site)
    address = Address(str(settings.folder / SOCKET_NAME), settings.tcp)
    setup = Setup(place.name, address, settings.policy, settings.policy_file)
    machine = Machine(desk, engine, place.readings, setup=setup)
    carrier, keeper = HttpCarrier(), place.moves or MoveFiles(settings.folder / "moves")
    origin = settings.tcp or socket.gethostname()
    moves = Moves(desk, keeper, carrier=carrier, limits=settings.moving, origin=origin)
    desk.travels, desk.cards = moves.word, place.cards
    pruning = _prune(launches, engine, keep_logs_s=settings.keep_logs_s)
    for chore in (pruning, *(each.run() for each in (training, cards, membership, rendezvous))):
        shell.tasks.rely_on(chore)
    try:
        await shell.start(
            launches.program, listener=partial(_pass_on, membership=membership, training=training)
        )
        for chore in place.chores(desk):
            shell.tasks.rely_on(chore)
        doorkeeper = Doorkeeper(tokens, admins=settings.admins, strangers=place.strangers)
        visits = Visits(desk, engine)
        desks = (training, rendezvous, moves)
        shell.tasks.rely_on(moves.run())
        yield House(desk, machine, tokens, doorkeeper, visits, *desks, settings.patience)
    finally:
        await shell.close()


def _env(job: Job, *, url: str, tokens: Tokens) -> dict[str, str]:
    """How a worker reaches us."""
    return {"ROTA_URL": url, "ROTA_TOKEN": tokens.for_attempt(job.id, job.attempt)} if url else {}


@asynccontextmanager
async def _doors(settings: Settings, house: House) -> AsyncGenerator[None]:
    app = create(house)
    paths = [settings.folder / SOCKET_NAME, _door(settings.folder) / SOCKET_NAME]
    sockets = [unix_socket(path) for path in paths]
    if settings.listen:
        sockets.append(tcp_socket(*settings.listen))
    front = server(app, patience=settings.patience)
    running = asyncio.ensure_future(front.serve(sockets=sockets))
    try:
        await started(front, running)
        yield
    finally:
        front.should_exit = True
        await running
        for path in paths:
            path.unlink(missing_ok=True)


def _door(folder: Path) -> Path:
    """A folder with nothing but a socket in it. A container is shown the folder: a socket alone
    would be lost to it when we start again and make another."""
    door = folder / DOOR_NAME
    door.mkdir(exist_ok=True)
    door.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return door
