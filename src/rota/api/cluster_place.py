"""A daemon of a Kubernetes cluster: it waits until it is the one that commands, and stops when it
is so no longer."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from rota.api.leading import own_claims, show_who_leads
from rota.api.places import Chore, Ground, Place
from rota.api.standby import standing_by
from rota.api.strangers import ClusterPeople
from rota.api.turn import Turn
from rota.daemon.admission import Defaults
from rota.daemon.checkpoints import Checkpoints
from rota.daemon.desk import Desk
from rota.daemon.ended_objects import EndedObjects, Keep
from rota.daemon.fields import claim_of
from rota.daemon.move_secret import SECRET as MOVES
from rota.daemon.move_secret import MoveSecret
from rota.daemon.petitions import Ground as PetitionGround
from rota.daemon.petitions import Petitions
from rota.daemon.plain_pods import PlainPods
from rota.daemon.premises import Nodes
from rota.daemon.showing import keep_showing
from rota.engines.base import Account
from rota.engines.kubernetes.api import PODS, TRAINING_JOBS, Change, Cluster, Scope, connect
from rota.engines.kubernetes.aside import Aside
from rota.engines.kubernetes.drawer import Drawer
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.engines.kubernetes.lease import Lease
from rota.engines.kubernetes.placeholders import can_be_shared
from rota.engines.kubernetes.resources import Resources
from rota.engines.kubernetes.reviews import TokenReviews
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.watch import Reflector, insist
from rota.store.cluster import ClusterStore
from rota.store.sqlite import SqliteStore

log = structlog.get_logger()

LEASE = "rota"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which cluster, and how jobs run there. Checkpoints go to folders that the nodes share with
    us, or to the `volume`, or nowhere."""

    kubeconfig: Path | None
    context: str
    workers: KubernetesSettings
    checkpoints: Checkpoints | None
    volume: str
    listen: tuple[str, int] | None
    defaults: Callable[[str], Defaults]
    groups: tuple[frozenset[str], frozenset[str]]
    """Of the cluster: whose members may come in, none: all whom it knows; and administrators."""
    keep: Keep
    accounts: Mapping[str, Account]
    """As whom the jobs of these people run."""


@asynccontextmanager
async def cluster_place(ground: Ground, *, choice: Choice) -> AsyncGenerator[Place]:
    cluster = _connect(choice)
    # With a connection and a thread of its own: to keep the lease never waits for anything else.
    aside, lease_cluster = Aside("lease"), _connect(choice)
    lease = Lease(lease_cluster, LEASE, identity=_identity())
    cluster.gate = lease.require
    engine = KubernetesEngine(cluster, choice.workers, root=ground.folder / "engine-kubernetes")
    work: list[asyncio.Future[None]] = []
    resources, turn = Resources(cluster, term=lambda: lease.term), Turn(lease, aside)
    try:
        await aside.run(show_who_leads(lease_cluster, leads=False))
        async with standing_by(choice.listen, why=turn.why):
            # Whoever waits is in the picture when it is its turn.
            watching = asyncio.ensure_future(insist(engine.watch, what="a look at the cluster"))
            broken = asyncio.ensure_future(engine.broken())
            acquiring = asyncio.ensure_future(turn.wait(resources))
            work += [watching, broken, acquiring]
            await _first_of(acquiring, broken)
        holding = asyncio.ensure_future(aside.run(lease.hold()))
        lost = asyncio.ensure_future(_first_of(holding, broken))
        work += [holding, lost]
        lease_cluster.gate = lease.require
        await aside.run(show_who_leads(lease_cluster, leads=True))
        await watching
        async with _led(ground, engine, choice=choice, resources=resources) as made:
            yield made(lost)
    finally:
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await engine.close()
        await aside.run(lease.give_up())
        await aside.run(lease_cluster.close())
        await aside.close()
        await cluster.close()


async def _first_of(*futures: asyncio.Future[None]) -> None:
    """Ends, or fails, as the first of them does."""
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


@asynccontextmanager
async def _led(
    ground: Ground, engine: KubernetesEngine, *, choice: Choice, resources: Resources
) -> AsyncGenerator[Callable[[asyncio.Future[None]], Place]]:
    cluster = engine.cluster
    key = await resources.key()
    claims = await own_claims(cluster)
    local = await asyncio.to_thread(SqliteStore, ground.store_file)
    store = ClusterStore(local, resources, key=key, nodes=engine.inventory, spare=engine.spare)
    truth = Truth(cluster, resources, store, key)
    url = url_of(choice.workers.advertise, ground.tcp)
    if not can_be_reached(url):
        log.warning("pods cannot report to us there; set 'advertise'", url=url or "no --listen")

    def made(lost: asyncio.Future[None]) -> Place:
        return Place(
            name="kubernetes",
            store=store,
            engine=engine,
            premises=_premises(ground, choice, truth=truth, url=url, claims=claims),
            key=key,
            url=url,
            lost=lost,
            has_stand_ins=True,
            chores=partial(_chores, truth=truth, choice=choice),
            cards=engine.cards,
            moves=MoveSecret(Drawer(cluster, MOVES)),
            strangers=ClusterPeople(TokenReviews(cluster), *choice.groups),
        )

    try:
        await asyncio.to_thread(store.prepare)
        yield made
    finally:
        await asyncio.to_thread(store.close)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the cluster knows, and how it is reached."""

    cluster: Cluster
    resources: Resources
    store: ClusterStore
    key: bytes


def _premises(
    ground: Ground, choice: Choice, *, truth: Truth, url: str, claims: frozenset[str]
) -> Nodes:
    gpu_resource = choice.workers.gpu_resource
    return Nodes(
        ground.snapshots,
        choice.checkpoints,
        choice.volume,
        choice.workers.host_paths,
        is_reached=can_be_reached(url),
        owner=lambda job_id: truth.resources.owner(truth.store.object_of(job_id)),
        accounts=choice.accounts,
        kept_claims=claims | {claim_of(choice.volume)} - {""},
        unshared="" if can_be_shared(gpu_resource) else gpu_resource,
    )


def _chores(desk: Desk, *, truth: Truth, choice: Choice) -> Sequence[Chore]:
    cluster, resources, store = truth.cluster, truth.resources, truth.store
    petitions = Petitions(
        desk,
        store,
        resources=resources,
        ground=PetitionGround(truth.key, cluster.namespace, choice.defaults),
    )
    pods = PlainPods(desk, cluster, resources=resources, gpu_resource=choice.workers.gpu_resource)
    ended = EndedObjects(resources.delete, choice.keep, key=truth.key, clock=desk.clock)

    def hear(change: Change) -> None:
        petitions.hear(change)
        ended.hear(change)

    scope = Scope(cluster.namespace)
    reflectors = (
        Reflector(cluster, TRAINING_JOBS, scope=scope, listener=hear, first=resources.take_listing),
        Reflector(cluster, PODS, scope=pods.scope, listener=pods.hear),
    )
    watches = [each.run() for each in reflectors]
    keeping = keep_showing(desk, store), resources.keep_state()
    return *watches, petitions.run(), pods.run(), ended.run(), *keeping


def url_of(advertise: str, tcp: str) -> str:
    """Where the workers of a cluster reach us; empty if nobody knows."""
    host, port = os.environ.get("ROTA_SERVICE_HOST"), os.environ.get("ROTA_SERVICE_PORT")
    if advertise or not (host and port):
        return advertise or (f"http://{tcp}" if tcp else "")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def can_be_reached(url: str) -> bool:
    """Whether somebody else's machine could."""
    host = urlsplit(url).hostname or "localhost"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return not (address.is_loopback or address.is_unspecified)


def _connect(choice: Choice) -> Cluster:
    return connect(choice.kubeconfig, choice.context, namespace=choice.workers.namespace)


def _identity() -> str:
    """Never that of another process, nor of this one in another life."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
