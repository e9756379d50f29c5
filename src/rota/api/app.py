"""Creates the API application from the services and the routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import rota
from rota.api import errors
from rota.api.auth import Authenticator
from rota.api.body_limits import RequestLimitMiddleware
from rota.api.connection_limiter import ConnectionLimiter
from rota.api.fair_queue import FairQueue
from rota.api.router import LazyRoute
from rota.api.routes import (
    daemon,
    events,
    history,
    jobs,
    logs,
    metrics,
    nodes,
    rendezvous,
    shipping,
    tokens,
    training,
)
from rota.api.routes import exec as exec_routes
from rota.api.streams import OpenStreams
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.config.limits import DEFAULT_LIMITS, UserLimits
from rota.daemon.access.snapshot_access import SnapshotAccess
from rota.daemon.access.tokens import Tokens
from rota.daemon.artifacts.job_files import JobFiles
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.cluster_service import ClusterService
from rota.daemon.elastic.torchrun_rendezvous import TorchrunRendezvous
from rota.daemon.jobs.exec_sessions import ExecSessions
from rota.daemon.jobs.job_history import JobHistory
from rota.daemon.jobs.job_logs import LogReader
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.job_service import JobService
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.migration.migrator import Migrator
from rota.daemon.submit_plan_service import SubmitPlanService
from rota.daemon.training.report_service import ReportService

DESCRIPTION = "Shares a lab's GPUs between the people who train on them."
STREAMS = "/v1/blobs/"
"""Path prefix of routes that read their bodies themselves."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the routes call."""

    job_service: JobService
    submissions: SubmissionService
    submit_plans: SubmitPlanService
    directory: JobDirectory
    history: JobHistory
    log_reader: LogReader
    exec_sessions: ExecSessions
    job_files: JobFiles
    snapshots: Snapshots
    snapshot_access: SnapshotAccess
    cluster_service: ClusterService
    tokens: Tokens
    authenticator: Authenticator
    report_service: ReportService
    rendezvous: TorchrunRendezvous
    migrator: Migrator
    timeouts: ClientTimeouts
    streams: OpenStreams = field(default_factory=OpenStreams)
    queue: FairQueue = field(default_factory=FairQueue)
    connections: ConnectionLimiter = field(default_factory=ConnectionLimiter)
    limits: UserLimits = DEFAULT_LIMITS


def create(services: Services) -> Any:
    app = _app()
    app.state.services = services
    app.state.authenticator = services.authenticator
    return RequestLimitMiddleware(
        app,
        authenticator=services.authenticator,
        timeouts=services.timeouts,
        queue=services.queue,
        streams=STREAMS,
    )


def description() -> dict[str, Any]:
    """The OpenAPI description of all routes."""
    return _app().openapi()


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            routes = [
                each.described() if isinstance(each, LazyRoute) else each for each in self.routes
            ]
            self.openapi_schema = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=routes
            )
        return self.openapi_schema


def _app() -> FastAPI:
    app = _Api(
        title="rota",
        version=rota.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    # Routes are matched in this order: the routes that each worker calls every second come first.
    first, others = (training, rendezvous), (jobs, events, logs, exec_routes, shipping)
    for module in (*first, *others, nodes, daemon, tokens, history, metrics):
        # `include_router` would build each route a second time.
        app.router.routes.extend(module.router.routes)
    errors.install(app)
    return app
