"""One job at which rota fails cannot break the daemon: other users' jobs run, restarts included.

Whatever raises in the work for one job, at whatever await and system call: the job ends, or is
held, and the daemon stays healthy.
"""

import asyncio
import errno
import os
import pwd
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.api.listeners import TcpListener
from rota.core.kernel import job_table
from rota.core.lifecycle.reducer import react
from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobCancelled, JobHeld, JobReleased, WorkersExited
from rota.core.model.job import JobId
from rota.core.model.units import GIB
from rota.core.scheduling import round as scheduling_round
from rota.core.scheduling.divide import divide
from rota.core.scheduling.view import Rules
from rota.daemon.access.authorization import Caller
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.elastic.membership import MembershipService
from rota.daemon.jobs.admission import Defaults
from rota.daemon.launch.checkpoint_dirs import parse_checkpoint_dirs
from rota.daemon.runtime import command_delivery
from rota.engines.local import engine as local_engine
from rota.engines.local import worker_spec, workers
from rota.engines.local.gpus import VirtualGpus
from rota.server.backend import BackendContext, local_backend
from rota.server.composition import Daemon, build_daemon
from rota.server.settings import Settings
from rota.store.codec import CodecError
from rota.store.sqlite import batch_sql, row_codec
from rota.wire.jobs import JobRequest
from tests.attack.fault_injection import INJECTOR
from tests.support.seed_counts import IS_FAST, IS_LONG
from tests.support.timeouts import PATIENCE_S

BOB = Caller(pwd.getpwuid(os.getuid()).pw_name, os.getuid())
EVE = Caller("nobody", pwd.getpwnam("nobody").pw_uid) if os.getuid() == 0 else BOB
SECRET = "hunter2"
FAILS = JobRequest(
    ["sh", "-c", "echo RuntimeError: no; exit 3"], gpus="1", workdir="/", env={"KEY": SECRET}
)
LASTS = JobRequest(["sleep", "10000"], gpus="1", workdir="/", grace="0", env={"KEY": SECRET})
ENDS = JobRequest(["true"], gpus="1", workdir="/")
STEP = 1 if IS_LONG else 100 if IS_FAST else 10
"""Of so many points one is tried."""


class House:
    """A whole daemon in this process, without its listeners."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.services = daemon, daemon.services
        self.controller = daemon.controller

    async def submit(self, caller: Caller, request: JobRequest) -> JobId:
        [job_id] = await self.services.submissions.submit(caller, [request])
        return job_id

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - an event may come without a write
                await asyncio.sleep(0.001)

    @property
    def trouble(self) -> str:
        return self.services.cluster_service.trouble

    def state(self, job_id: JobId) -> JobState:
        job = self.controller.job(job_id)
        return job.state if job is not None else self.controller.outcomes[job_id]

    def is_parked(self, job_id: JobId) -> bool:
        return self.state(job_id).is_final or self.state(job_id) is JobState.HELD

    async def require_served(self) -> None:
        """Bob's job runs to its end, and the daemon is healthy."""
        job_id = await self.submit(BOB, ENDS)
        await self.until(lambda: self.state(job_id).is_final)
        assert self.state(job_id) is JobState.SUCCEEDED
        assert not self.trouble
        assert not self.services.cluster_service.is_broken
        assert not self.services.cluster_service.stall

    def story(self, job_id: JobId) -> str:
        entries = self.services.history.entries(EVE, job_id, after=0, limit=1000)
        return "\n".join(str(each) for each in entries)


@asynccontextmanager
async def house(folder: Path) -> AsyncGenerator[House]:
    settings = Settings(
        folder=folder,
        store_file=folder / "rota.db",
        backend=partial(
            local_backend,
            gpus=VirtualGpus(4, 16 * GIB),
            checkpoints=parse_checkpoint_dirs("", folder=folder),
        ),
        policy="fifo",
        policy_file=folder / "policy",
        rules=Rules(backoff_s=0.01),
        defaults=lambda _: Defaults(),
    )
    snapshots = Snapshots(folder / "snapshots")
    context = BackendContext(folder, settings.store_file, None, snapshots)
    async with settings.backend(context) as backend:
        daemon = build_daemon(
            settings,
            backend,
            snapshots=snapshots,
            clock=time.time,
            tcp=TcpListener(None),
        )
        controller = daemon.controller
        for each in daemon.early_tasks:
            controller.tasks.spawn_critical(each.run())
        try:
            await controller.start(daemon.launcher.program, listeners=daemon.listeners)
            yield House(daemon)
        finally:
            await controller.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_delivery, "FIRST_RETRY_S", 0.0)
    monkeypatch.setattr(workers, "TRY_AGAIN_S", 0.0)


async def life_of_a_poison_job(
    subject: House, *, request: JobRequest, at: int, error: Callable[[], Exception]
) -> JobId:
    """Submit a job, cancel it if it lasts, and wait until it is parked. Others are served."""
    job_id = await subject.submit(EVE, request)
    with INJECTOR.aimed(job_id, at=at, error=error):
        await subject.until(
            lambda: subject.is_parked(job_id) or subject.state(job_id) is JobState.RUNNING
        )
        if request is LASTS:
            subject.controller.apply_event(JobCancelled(job_id, "eve"))
        await subject.until(lambda: subject.is_parked(job_id))
    await subject.require_served()
    return job_id


@pytest.mark.parametrize("request_", [FAILS, LASTS], ids=["fails", "is stopped"])
@pytest.mark.parametrize(
    "error",
    [
        lambda: RuntimeError(f"cannot handle '{SECRET}'"),
        lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    ],
    ids=["unforeseen", "system"],
)
def test_an_error_at_any_point_of_a_job_concerns_this_job_alone(
    tmp_path: Path, request_: JobRequest, error: Callable[[], Exception]
) -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_task_factory(INJECTOR.make_task)
        async with house(tmp_path) as subject:
            await life_of_a_poison_job(subject, request=request_, at=0, error=error)
            n_points = INJECTOR.n_points
            assert n_points > 20
            for at in range(1, n_points + 1, STEP):
                job_id = await life_of_a_poison_job(subject, request=request_, at=at, error=error)
                assert SECRET not in subject.story(job_id)

    asyncio.run(scenario())


Fault = Callable[[pytest.MonkeyPatch, JobId], None]


def _start(monkeypatch: pytest.MonkeyPatch, poison: JobId) -> None:
    def render(command: Any, *arguments: Any, **more: Any) -> Any:
        if command.job_id == poison:
            raise KeyError(SECRET)
        return worker_spec.render(command, *arguments, **more)

    monkeypatch.setattr(local_engine, "render", render)


def _exit(monkeypatch: pytest.MonkeyPatch, poison: JobId) -> None:
    def react_to(job: Any, event: Any, **more: Any) -> Any:
        if job.id == poison and isinstance(event, WorkersExited):
            raise KeyError(SECRET)
        return react(job, event, **more)

    monkeypatch.setattr(job_table, "react", react_to)


def _round(monkeypatch: pytest.MonkeyPatch, poison: JobId) -> None:
    def divide_jobs(view: Any) -> Any:
        if poison in view.jobs:
            raise KeyError(SECRET)
        return divide(view)

    monkeypatch.setattr(scheduling_round, "divide", divide_jobs)


def _service(monkeypatch: pytest.MonkeyPatch, poison: JobId) -> None:
    def on_command(_: object, command: Any) -> None:
        if command.job_id == poison:
            raise KeyError(SECRET)

    monkeypatch.setattr(MembershipService, "on_command", on_command)


def _write(monkeypatch: pytest.MonkeyPatch, poison: JobId) -> None:
    def event_row(entry: Any, actor: str) -> Any:
        if entry.job_id == poison and "exit code 3" in entry.reason:
            raise CodecError(f"not a number: '{SECRET}'")
        return row_codec.event_row(entry, actor)

    monkeypatch.setattr(batch_sql, "event_row", event_row)


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        (_start, JobState.HELD),
        (_exit, JobState.HELD),
        (_round, JobState.HELD),
        (_service, JobState.FAILED),
        (_write, JobState.HELD),
    ],
)
def test_a_job_that_rota_always_fails_at_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, end: JobState
) -> None:
    async def scenario() -> tuple[JobId, JobId]:
        async with house(tmp_path) as subject:
            other = await subject.submit(BOB, LASTS)
            await subject.until(lambda: subject.state(other) is JobState.RUNNING)
            poison = await subject.submit(EVE, replace(FAILS, hold=True))
            fault(monkeypatch, poison)
            subject.controller.apply_event(JobReleased(poison, "eve"))
            await subject.until(lambda: subject.state(poison) is end and not subject.trouble)
            await subject.require_served()
            if end is JobState.HELD:
                assert "bug in rota" in subject.story(poison)
            assert SECRET not in subject.story(poison)
            assert subject.state(other) is JobState.RUNNING
            return poison, other

    async def after_restart(poison: JobId, other: JobId) -> None:
        async with house(tmp_path) as subject:
            await subject.require_served()
            assert subject.state(other) is JobState.RUNNING
            subject.controller.apply_event(JobCancelled(other))
            await subject.until(lambda: subject.state(other).is_final)
            if end is JobState.HELD:
                assert subject.state(poison) is JobState.HELD
                subject.controller.apply_event(JobCancelled(poison))
                await subject.until(lambda: subject.state(poison).is_final)

    asyncio.run(after_restart(*asyncio.run(scenario())))


def test_unreadable_files_and_rows_of_one_job_do_not_stop_a_start(tmp_path: Path) -> None:
    async def scenario() -> tuple[JobId, JobId]:
        async with house(tmp_path) as subject:
            running, queued = [await subject.submit(EVE, LASTS) for _ in range(2)]
            await subject.until(lambda: subject.state(running) is JobState.RUNNING)
            subject.controller.apply_event(JobHeld(queued))
            await subject.until(lambda: subject.state(queued) is JobState.HELD)
            return running, queued

    async def after_restart(running: JobId, queued: JobId) -> None:
        record = tmp_path / "engine" / "jobs" / running / "1" / "0" / "keeper.json"
        record.rename(record.with_suffix(".kept"))
        record.mkdir()
        with sqlite3.connect(tmp_path / "rota.db") as connection:
            connection.execute("UPDATE jobs SET body = '{}' WHERE id = ?", [queued])
        async with house(tmp_path) as subject:
            await subject.require_served()
            warnings = subject.services.cluster_service.status().warnings
            assert [each for each in warnings if f"job {queued} cannot be read" in each]
            record.rmdir()
            record.with_suffix(".kept").rename(record)
            subject.controller.apply_event(JobCancelled(running))
            await subject.until(lambda: subject.is_parked(running))

    asyncio.run(after_restart(*asyncio.run(scenario())))
