"""No operation of the job routes reads the store in the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.api.fair_queue import FairQueue
from rota.api.routes import events as event_routes
from rota.api.routes import exec as exec_routes
from rota.api.routes import jobs as routes
from rota.api.routes import logs as log_routes
from rota.api.streams import OpenStreams
from rota.config.limits import DEFAULT_LIMITS
from rota.core.model.events import NodeSeen
from rota.daemon.access.authorization import Caller, PriorityLimits
from rota.daemon.jobs.admission import Defaults
from rota.daemon.jobs.exec_sessions import ExecSessions
from rota.daemon.jobs.job_history import JobHistory
from rota.daemon.jobs.job_logs import LogReader
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.job_selection import JobAction
from rota.daemon.jobs.job_service import JobService, JobViewSources
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.launch.local import LocalEnvironment
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.engines.interface import Program
from rota.errors import UserError
from rota.policies.registry import parse
from rota.server.backend import NoGpuInfo
from rota.store.records import JobFilter
from rota.store.sqlite.store import SqliteStore
from rota.wire.job_changes import JobSelection
from rota.wire.jobs import JobRequest
from tests.support.builders import QUICK, cluster
from tests.unit.daemon.idle_engine import idle_engine

ADA = Caller("ada", uid=1000)
REQUEST = JobRequest(command=["p"], gpus="1", workdir="/", name="train", hold=True)
WRITES = ("write", "resume")


class StoreOutsideTheLoop:
    """A store whose reads fail in the thread of an event loop."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.is_armed = False

    def __getattr__(self, name: str) -> Any:
        if self.is_armed and name not in WRITES and _is_in_event_loop():
            raise AssertionError(f"Store.{name} blocks the event loop")
        return getattr(self._store, name)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Services:
    """The services behind the job routes, on a store that checks its callers."""

    def __init__(self, store: Any) -> None:
        nothing: Any = None
        parts = ControllerDependencies(store, idle_engine(), lambda: 100.0, QUICK)
        self.controller = Controller(parts, parse("fifo"))
        self.directory = JobDirectory(self.controller, store)
        self.history = JobHistory(self.directory, store, clock=lambda: 100.0)
        self.log_reader = LogReader(self.directory, idle_engine())
        self.exec_sessions = ExecSessions(self.directory, idle_engine())
        self.streams, self.timeouts = OpenStreams(), SimpleNamespace(keepalive_s=15.0)
        self.queue = FairQueue()
        site: Any = SimpleNamespace(
            clock=lambda: 100.0,
            defaults=lambda _: Defaults(),
            snapshots=nothing,
            limits=DEFAULT_LIMITS,
            launch_environment=LocalEnvironment(nothing, nothing, socket_dir=""),
            priority_limits=PriorityLimits(),
        )
        self.submissions = SubmissionService(
            self.controller, store, directory=self.directory, site=site
        )

        async def refresh() -> None: ...

        sources = JobViewSources(
            cast("Any", SimpleNamespace(refresh=refresh, expected={}, is_crowded=False)),
            cast("Any", SimpleNamespace(why=lambda _: "")),
            cast("Any", SimpleNamespace(workers=lambda _: (), slow_workers=lambda _: {})),
            NoGpuInfo(),
        )
        self.job_service = JobService(
            self.controller, self.directory, store=store, sources=sources, clock=lambda: 100.0
        )


async def _no_program(job_id: Any) -> Program:
    raise UserError(f"{job_id} must not start")


Operation = Callable[[Services, str], Awaitable[object]]


async def _watch(made: Services, word: str) -> None:
    services = cast("Any", made)
    stream = await event_routes.events(services, ADA, job=word, after=0)
    chunks = aiter(cast("Any", stream).body_iterator)
    assert "id: 0" in await anext(chunks)
    assert "held" in await anext(chunks)
    await chunks.aclose()
    await event_routes.events(services, ADA)


async def _logs(made: Services, word: str) -> None:
    request: Any = SimpleNamespace(headers={})
    wanted = log_routes.LogQueryParams.model_validate({})
    services = cast("Any", made)
    await log_routes.logs(word, wanted, request=request, services=services, caller=ADA)


async def _exec(made: Services, word: str) -> None:
    with pytest.raises(UserError, match="held"):
        await exec_routes._target(word, cast("Any", made), caller=ADA)


OPERATIONS: dict[str, Operation] = {
    "list": lambda made, _: made.job_service.page(ADA, JobFilter(), before=None, limit=10),
    "show": lambda made, word: made.job_service.details(ADA, word),
    "profile": lambda made, word: made.job_service.profile(ADA, word),
    "release": lambda made, word: made.job_service.change_one(ADA, word, action=JobAction.RELEASE),
    "cancel": lambda made, word: made.job_service.change(
        ADA, JobSelection(jobs=[word]), action=JobAction.CANCEL
    ),
    "submit": lambda made, _: made.submissions.submit(ADA, [REQUEST], key="new"),
    "submit again": lambda made, _: made.submissions.submit(ADA, [REQUEST], key="key"),
    "submit after": lambda made, word: made.submissions.submit(
        ADA, [JobRequest(command=["p"], workdir="/", after=[word])]
    ),
    "check": lambda made, _: made.submissions.dry_run(ADA, [REQUEST]),
    "resubmit": lambda made, word: made.submissions.resubmit(ADA, word),
    "request": lambda made, word: routes.resubmit_request(
        word, services=cast("Any", made), caller=ADA
    ),
    "story": lambda made, word: routes.story(word, services=cast("Any", made), caller=ADA),
    "events": _watch,
    "logs": _logs,
    "exec": _exec,
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("is_by_name", [True, False], ids=["name", "id"])
def test_a_job_route_reads_the_store_in_a_thread(
    tmp_path: Path, name: str, is_by_name: bool
) -> None:
    async def scenario() -> None:
        store = StoreOutsideTheLoop(SqliteStore(tmp_path / "rota.db"))
        made = Services(store)
        await made.controller.start(_no_program, listeners=())
        made.controller.apply_events(map(NodeSeen, cluster("1x4")), (), actor="")
        [job_id] = await made.submissions.submit(ADA, [REQUEST], key="key")
        store.is_armed = True
        try:
            await OPERATIONS[name](made, "train" if is_by_name else job_id)
        finally:
            store.is_armed = False
            await made.controller.close()
            store.close()

    asyncio.run(scenario())


def test_a_key_that_is_used_twice_at_once_creates_one_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "rota.db")
        made = Services(store)
        await made.controller.start(_no_program, listeners=())
        made.controller.apply_events(map(NodeSeen, cluster("1x4")), (), actor="")
        submits = (made.submissions.submit(ADA, [REQUEST], key="key") for _ in range(5))
        answers = await asyncio.gather(*submits)
        assert len({tuple(each) for each in answers}) == 1
        assert len(made.controller.kernel.jobs) == 1
        await made.controller.close()
        store.close()

    asyncio.run(scenario())
