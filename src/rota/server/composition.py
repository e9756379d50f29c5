"""Builds all objects of a daemon. Each object gets what it needs as constructor arguments."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from rota.api.app import Services
from rota.api.auth import Authenticator
from rota.api.connection_limiter import ConnectionLimiter
from rota.api.fair_queue import FairQueue
from rota.api.listeners import format_address
from rota.api.streams import OpenStreams
from rota.config.paths import SOCKET_NAME
from rota.daemon.access.snapshot_access import SnapshotAccess
from rota.daemon.access.tokens import Tokens
from rota.daemon.artifacts.job_files import JobFiles
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.cluster_service import ClusterService, DaemonAddress, DaemonSetup, TcpState
from rota.daemon.elastic.membership import MembershipService
from rota.daemon.elastic.torchrun_rendezvous import TorchrunRendezvous
from rota.daemon.jobs.exec_sessions import ExecSessions
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.job_history import JobHistory
from rota.daemon.jobs.job_logs import LogReader
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.job_service import JobService, JobViewSources
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.jobs.views import WaitReasons
from rota.daemon.launch.launcher import Launcher, SiteConfig, WorkerCredentials
from rota.daemon.migration.migrator import Migrator, TransferBuilder
from rota.daemon.migration.planned_moves import PlannedMoves
from rota.daemon.retention import JobRetention
from rota.daemon.runtime.command_delivery import CommandListener
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.daemon.submit_plan_service import SubmitPlanService
from rota.daemon.training.gpu_memory import GpuMemoryMonitor
from rota.daemon.training.report_service import ReportService
from rota.daemon.training.worker_progress import RunningAttempts
from rota.engines.virtual.forecast import forecast_engine
from rota.policies.registry import parse
from rota.server.backend import Backend, TaskServices
from rota.server.migration_transport import HttpMigrationTransport
from rota.server.settings import Settings

Clock = Callable[[], float]


class Runnable(Protocol):
    async def run(self) -> None:
        """Runs until it is cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Daemon:
    """The objects that the main program starts and stops."""

    controller: Controller
    launcher: Launcher
    services: Services
    listeners: Sequence[CommandListener]
    early_tasks: Sequence[Runnable]
    """Start before the controller: these take the events of its start."""
    late_tasks: Sequence[Runnable]
    task_services: TaskServices
    retention: JobRetention


def build_daemon(
    settings: Settings,
    backend: Backend,
    *,
    snapshots: Snapshots,
    clock: Clock,
    tcp: TcpState,
) -> Daemon:
    return _Composition(settings, backend, snapshots=snapshots, clock=clock, tcp=tcp).daemon()


class _Composition:
    """Each property builds one object at its first use, from the objects that it needs."""

    def __init__(
        self,
        settings: Settings,
        backend: Backend,
        *,
        snapshots: Snapshots,
        clock: Clock,
        tcp: TcpState,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._store = backend.store
        self._snapshots = snapshots
        self._clock = clock
        self._tcp = tcp

    def daemon(self) -> Daemon:
        return Daemon(
            controller=self._controller,
            launcher=Launcher(self._controller, self._store, site=self._site),
            services=self._services(),
            listeners=(self._membership, self._reports),
            early_tasks=(self._reports, self._gpu_memory, self._membership, self._rendezvous),
            late_tasks=(self._migrator,),
            task_services=TaskServices(
                self._controller, self._submissions, self._reasons, self._forecaster, self._clock
            ),
            retention=JobRetention(
                self._controller,
                self._store,
                tokens=self._tokens,
                limits=self._settings.retention,
                clock=self._clock,
            ),
        )

    def _services(self) -> Services:
        engine, limits = self._backend.engine, self._settings.limits
        return Services(
            job_service=self._job_service,
            submissions=self._submissions,
            submit_plans=SubmitPlanService(
                self._controller,
                self._submissions,
                forecaster=self._forecaster,
                clock=self._clock,
            ),
            directory=self._directory,
            history=JobHistory(self._directory, self._store, clock=self._clock),
            log_reader=LogReader(self._directory, engine),
            exec_sessions=ExecSessions(self._directory, engine, limits=limits),
            job_files=JobFiles(
                self._directory,
                self._store,
                launch_environment=self._backend.launch_environment,
            ),
            snapshots=self._snapshots,
            snapshot_access=self._snapshot_access,
            cluster_service=self._cluster_service(),
            tokens=self._tokens,
            authenticator=Authenticator(
                self._tokens,
                admins=self._settings.admins,
                external_auth=self._backend.external_auth,
            ),
            report_service=self._reports,
            rendezvous=self._rendezvous,
            migrator=self._migrator,
            timeouts=self._settings.timeouts,
            streams=OpenStreams(limits.max_streams),
            queue=FairQueue(limits.max_requests_per_s, limits.max_request_cpu),
            connections=ConnectionLimiter(most_of_user=limits.max_connections),
            limits=limits,
        )

    # -- kernel and submissions -----------------------------------------------------------------

    @cached_property
    def _controller(self) -> Controller:
        parts = ControllerDependencies(
            self._store,
            self._backend.engine,
            self._clock,
            self._settings.rules,
            self._backend.start_records,
        )
        return Controller(parts, parse(self._settings.policy))

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(
            self._controller,
            self._store,
            key=self._backend.key,
            clock=self._clock,
            most=self._settings.limits.max_tokens,
        )

    @cached_property
    def _site(self) -> SiteConfig:
        return SiteConfig(
            self._clock,
            self._settings.defaults,
            WorkerCredentials(self._backend.url, self._tokens),
            self._snapshots,
            self._backend.launch_environment,
            self._settings.limits,
            self._settings.priority_limits,
        )

    @cached_property
    def _directory(self) -> JobDirectory:
        return JobDirectory(self._controller, self._store)

    @cached_property
    def _submissions(self) -> SubmissionService:
        return SubmissionService(
            self._controller, self._store, directory=self._directory, site=self._site
        )

    @cached_property
    def _snapshot_access(self) -> SnapshotAccess:
        return SnapshotAccess(
            self._snapshots,
            self._store,
            launch_environment=self._backend.launch_environment,
            clock=self._clock,
        )

    # -- training -------------------------------------------------------------------------------

    @cached_property
    def _attempts(self) -> RunningAttempts:
        return RunningAttempts()

    @cached_property
    def _membership(self) -> MembershipService:
        return MembershipService(
            self._controller,
            self._attempts,
            clock=self._clock,
            liveness=self._settings.liveness,
        )

    @cached_property
    def _gpu_memory(self) -> GpuMemoryMonitor:
        return GpuMemoryMonitor(self._backend.gpu_memory)

    @cached_property
    def _reports(self) -> ReportService:
        return ReportService(
            self._controller,
            self._membership,
            attempts=self._attempts,
            gpu_memory=self._gpu_memory,
            clock=self._clock,
        )

    @cached_property
    def _rendezvous(self) -> TorchrunRendezvous:
        return TorchrunRendezvous(self._controller, self._membership, clock=self._clock)

    # -- views and moves ------------------------------------------------------------------------

    @cached_property
    def _planned_moves(self) -> PlannedMoves:
        return PlannedMoves(self._backend.move_journal, self._clock)

    @cached_property
    def _reasons(self) -> WaitReasons:
        return WaitReasons(self._controller.scheduling_loop, self._planned_moves)

    @cached_property
    def _forecaster(self) -> Forecaster:
        return Forecaster(self._controller, self._clock, engine_of=forecast_engine)

    @cached_property
    def _job_service(self) -> JobService:
        sources = JobViewSources(
            self._forecaster, self._reasons, self._reports, self._backend.worker_gpus
        )
        return JobService(
            self._controller,
            self._directory,
            store=self._store,
            sources=sources,
            clock=self._clock,
            priority_limits=self._settings.priority_limits,
        )

    @cached_property
    def _migrator(self) -> Migrator:
        transfers = TransferBuilder(
            self._directory,
            self._submissions,
            snapshots=self._snapshot_access,
            origin=self._origin,
        )
        return Migrator(
            self._controller,
            self._directory,
            job_service=self._job_service,
            planned=self._planned_moves,
            transfers=transfers,
            transport=HttpMigrationTransport(),
            limits=self._settings.migration,
            clock=self._clock,
        )

    @property
    def _origin(self) -> str:
        """The name of this daemon in the history of jobs that move to another one."""
        listen = self._settings.listen
        return format_address(listen.host, listen.port) if listen else socket.gethostname()

    def _cluster_service(self) -> ClusterService:
        settings, backend = self._settings, self._backend
        address = DaemonAddress(str(settings.folder / SOCKET_NAME), self._tcp)
        return ClusterService(
            self._controller,
            backend.engine,
            gpus=backend.gpus,
            setup=DaemonSetup(
                backend.name,
                address,
                settings.policy,
                settings.policy_file,
                settings.flags,
                settings.effective,
            ),
            clock=self._clock,
        )
