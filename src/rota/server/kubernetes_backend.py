"""The backend of a Kubernetes cluster. The daemon waits until it leads, and stops when it no longer
leads."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from rota.api.listeners import TcpAddress
from rota.core.model.job import JobId
from rota.daemon.jobs.admission import Defaults
from rota.daemon.jobs.validation import claim_of
from rota.daemon.launch.checkpoint_dirs import CheckpointDirs
from rota.daemon.launch.cluster import ClusterEnvironment
from rota.daemon.migration.secret_journal import SECRET as MOVES
from rota.daemon.migration.secret_journal import SecretMoveJournal
from rota.engines.interface import UnixAccount
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.engines.kubernetes.gpu_sharing.placeholder_pod import can_be_shared
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.client import KubeClient, connect
from rota.kube.http import allow_always
from rota.kube.informer import Reflector
from rota.kube.leader_election import LeaderLease
from rota.kube.loop_thread import LoopThread
from rota.kube.resources import PODS, TRAINING_JOBS, ResourceScope, WatchEvent
from rota.kube.retry import retry_until_final
from rota.kube.secret_store import SecretStore
from rota.kube.token_review import TokenReviewer
from rota.operator.pod_controller import PodController
from rota.operator.status_refresher import StatusRefresher
from rota.operator.training_job_controller import TrainingJobContext, TrainingJobController
from rota.operator.training_jobs import TrainingJobClient
from rota.operator.ttl_cleanup import TtlCleaner, TtlLimits
from rota.server.backend import (
    Backend,
    BackendContext,
    BackgroundTask,
    NoGpuInfo,
    TaskServices,
)
from rota.server.cluster_auth import TokenReviewAuthenticator
from rota.server.leader_label import own_claims, update_leader_label
from rota.server.leadership import LeaderCandidate
from rota.server.standby import serve_standby
from rota.store.kubernetes.store import KubernetesStore
from rota.store.sqlite.store import SqliteStore
from rota.thread_pools import STORE

log = structlog.get_logger()

LEASE = "rota"


@dataclass(frozen=True, slots=True)
class KubernetesBackendConfig:
    """The cluster, and how jobs run there. Checkpoints go to `checkpoints`, folders that daemon and
    nodes share, else to the `volume`, else nowhere."""

    kubeconfig: Path | None
    context: str
    workers: KubernetesSettings
    checkpoints: CheckpointDirs | None
    volume: str
    defaults: Callable[[str], Defaults]
    groups: tuple[frozenset[str], frozenset[str]]
    """Groups of the cluster: users (empty: all users of the cluster), and administrators."""
    keep: TtlLimits
    accounts: Mapping[str, UnixAccount]
    """User -> account that the user's jobs run as."""


@asynccontextmanager
async def kubernetes_backend(
    context: BackendContext, *, config: KubernetesBackendConfig
) -> AsyncGenerator[Backend]:
    """Waits for the lease first, on standby."""
    async with (
        _lease_clients(config) as clients,
        _engine(context, config, clients=clients) as engine,
    ):
        resources = TrainingJobClient(clients.cluster, lease=clients.lease)
        candidate = LeaderCandidate(clients.lease, clients.loop_thread)
        work: list[asyncio.Future[None]] = []
        try:
            await clients.loop_thread.run(update_leader_label(clients.ungated, leads=False))
            async with serve_standby(context.listen, candidate):
                # A daemon on standby already watches the cluster, so that it takes over quickly.
                watching = asyncio.ensure_future(
                    retry_until_final(engine.watch, what="initial list of nodes and pods")
                )
                broken = asyncio.ensure_future(engine.broken())
                acquiring = asyncio.ensure_future(candidate.wait(resources))
                work += [watching, broken, acquiring]
                await _first_of(acquiring, broken)
            holding = asyncio.ensure_future(
                clients.loop_thread.run(clients.lease.renew_until_lost())
            )
            lost = asyncio.ensure_future(_first_of(holding, broken))
            work += [holding, lost]
            await clients.loop_thread.run(update_leader_label(clients.gated, leads=True))
            await watching
            async with _leading_backend(
                context, engine, config=config, resources=resources, lost=lost
            ) as backend:
                yield backend
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _LeaseClients:
    """The lease, and the API clients that depend on it.

    The lease has a thread and a client of its own, so that its renewal never waits for other work.
    """

    cluster: KubeClient
    """For all work of the daemon; writes only while this daemon holds the lease."""
    lease: LeaderLease
    loop_thread: LoopThread
    ungated: KubeClient
    """For the lease itself, and before this daemon leads. Used in the thread only."""
    gated: KubeClient
    """Writes only while this daemon holds the lease. Used in the thread only."""


@asynccontextmanager
async def _lease_clients(config: KubernetesBackendConfig) -> AsyncGenerator[_LeaseClients]:
    loop_thread, ungated = LoopThread("lease"), _connect(config)
    lease = LeaderLease(ungated, LEASE, identity=_identity())
    gated = _connect(config, gate=lease.require)
    cluster = _connect(config, gate=lease.require)
    try:
        yield _LeaseClients(cluster, lease, loop_thread, ungated, gated)
    finally:
        await loop_thread.run(lease.release())
        await loop_thread.run(gated.close())
        await loop_thread.run(ungated.close())
        await loop_thread.close()
        await cluster.close()


@asynccontextmanager
async def _engine(
    context: BackendContext, config: KubernetesBackendConfig, *, clients: _LeaseClients
) -> AsyncGenerator[KubernetesEngine]:
    folder = context.folder / "engine-kubernetes"
    engine = KubernetesEngine(clients.cluster, config.workers, root=folder)
    try:
        yield engine
    finally:
        await engine.close()


async def _first_of(*futures: asyncio.Future[None]) -> None:
    """Returns or fails with the first of the futures."""
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


@asynccontextmanager
async def _leading_backend(
    context: BackendContext,
    engine: KubernetesEngine,
    *,
    config: KubernetesBackendConfig,
    resources: TrainingJobClient,
    lost: asyncio.Future[None],
) -> AsyncGenerator[Backend]:
    cluster = engine.cluster
    key = await resources.key()
    claims = await own_claims(cluster)
    store = await _store(context, engine, resources=resources, key=key)
    handles = ClusterHandles(cluster, resources, store, key)
    url = url_of(config.workers.advertise, context.listen)
    _warn_if_unreachable(url)
    try:
        await STORE.run(store.prepare)
        yield Backend(
            name="kubernetes",
            store=store,
            engine=engine,
            launch_environment=_launch_environment(
                context, config, handles=handles, url=url, claims=claims
            ),
            key=key,
            url=url,
            lost=lost,
            has_standby=True,
            background_tasks=OperatorTasks(handles, config),
            gpus=NoGpuInfo(),
            gpu_memory=NoGpuInfo(),
            worker_gpus=engine,
            move_journal=SecretMoveJournal(SecretStore(cluster, MOVES)),
            external_auth=TokenReviewAuthenticator(TokenReviewer(cluster), *config.groups),
        )
    finally:
        await STORE.run(store.close)


async def _store(
    context: BackendContext,
    engine: KubernetesEngine,
    *,
    resources: TrainingJobClient,
    key: bytes,
) -> KubernetesStore:
    local = await STORE.run(SqliteStore, context.store_file)
    return KubernetesStore(
        local,
        resources,
        key=key,
        nodes=engine.inventory,
        ignore_jobs=engine.ignore_jobs,
        know_external_pods=engine.know_external_pods,
    )


@dataclass(frozen=True, slots=True)
class ClusterHandles:
    """The clients and the store of the leading daemon."""

    cluster: KubeClient
    resources: TrainingJobClient
    store: KubernetesStore
    key: bytes

    def owner(self, job_id: JobId) -> tuple[str, str]:
        """Name and uid of the job's TrainingJob. Satisfies `launch.cluster.ObjectOwners`."""
        return self.resources.owner(self.store.object_name(job_id))


def _launch_environment(
    context: BackendContext,
    config: KubernetesBackendConfig,
    *,
    handles: ClusterHandles,
    url: str,
    claims: frozenset[str],
) -> ClusterEnvironment:
    gpu_resource = config.workers.gpu_resource
    return ClusterEnvironment(
        context.snapshots,
        config.checkpoints,
        config.volume,
        config.workers.host_paths,
        is_reached=can_be_reached(url),
        owners=handles,
        accounts=config.accounts,
        reserved_claims=claims | {claim_of(config.volume)} - {""},
        unshareable_resource="" if can_be_shared(gpu_resource) else gpu_resource,
    )


@dataclass(frozen=True, slots=True)
class OperatorTasks:
    """The tasks of the operator: TrainingJobs and pods become jobs, jobs become statuses."""

    handles: ClusterHandles
    config: KubernetesBackendConfig

    def create(self, services: TaskServices) -> Sequence[BackgroundTask]:
        handles = self.handles
        cluster, resources = handles.cluster, handles.resources
        jobs = TrainingJobController(
            services.controller,
            services.submissions,
            store=handles.store,
            resources=resources,
            context=TrainingJobContext(handles.key, cluster.namespace, self.config.defaults),
            clock=services.clock,
        )
        pods = self._pod_controller(services)
        ended = TtlCleaner(
            resources.delete, self.config.keep, key=handles.key, clock=services.clock
        )
        refresher = StatusRefresher(
            services.controller,
            handles.store,
            forecaster=services.forecaster,
            reasons=services.reasons,
            clock=services.clock,
        )

        def on_change(change: WatchEvent) -> None:
            jobs.on_change(change)
            ended.on_change(change)

        watches = [each.run() for each in self._reflectors(on_change, pods)]
        return (
            *watches,
            jobs.run(),
            pods.run(),
            ended.run(),
            refresher.run(),
            resources.restore_secret_forever(),
            handles.store.broken(),
        )

    def _pod_controller(self, services: TaskServices) -> PodController:
        return PodController(
            services.controller,
            services.submissions,
            store=self.handles.store,
            reasons=services.reasons,
            client=self.handles.cluster,
            resources=self.handles.resources,
            gpu_resource=self.config.workers.gpu_resource,
        )

    def _reflectors(
        self, on_change: Callable[[WatchEvent], None], pods: PodController
    ) -> tuple[Reflector, Reflector]:
        cluster, resources = self.handles.cluster, self.handles.resources
        training_jobs = Reflector(
            cluster,
            TRAINING_JOBS,
            scope=ResourceScope(cluster.namespace),
            listener=on_change,
            first=resources.take_listing,
        )
        return training_jobs, Reflector(cluster, PODS, scope=pods.scope, listener=pods.on_change)


def url_of(advertise: str, listen: TcpAddress | None) -> str:
    """Where the workers of a cluster reach the daemon; empty if unknown."""
    host, port = os.environ.get("ROTA_SERVICE_HOST"), os.environ.get("ROTA_SERVICE_PORT")
    if advertise or listen is None:
        return advertise
    return replace(listen, host=host, port=int(port)).url if host and port else listen.url


def _warn_if_unreachable(url: str) -> None:
    if not can_be_reached(url):
        log.warning("pods cannot reach the daemon; set 'advertise'", url=url or "no --listen")


def can_be_reached(url: str) -> bool:
    """Whether another machine could connect to this URL."""
    host = urlsplit(url).hostname or "localhost"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return not (address.is_loopback or address.is_unspecified)


def _connect(
    config: KubernetesBackendConfig, *, gate: Callable[[], None] = allow_always
) -> KubeClient:
    namespace = config.workers.namespace
    return connect(config.kubeconfig, config.context, namespace=namespace, gate=gate)


def _identity() -> str:
    """Unique for each process, also after a restart with the same process id."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
