"""A daemon in which a critical background task failed."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from structlog.testing import capture_logs

import rota.server.main
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.daemon.migration.requests import MoveJournal
from rota.daemon.runtime import scheduling_loop
from rota.daemon.training import gpu_memory
from rota.errors import UnavailableError
from rota.server.backend import (
    Backend,
    BackendContext,
    BackgroundTask,
    BackgroundTasks,
    PrunableEngine,
    TaskServices,
)
from rota.server.main import serve
from rota.server.settings import Settings
from tests.integration.api.daemon_main import settings
from tests.integration.api.daemon_process import LONG, PATIENCE_S, SLEEP

HANGING_POLICY = """
class Hanging:
    def size(self, jobs, budget, *, now):
        if jobs:
            with open({pipe!r}) as pipe:
                pipe.read()
        return {{}}
"""
BUG = "a bug in rota (KeyError)"

Change = Callable[[Backend], Backend]
Visit = Callable[[httpx2.AsyncClient], Awaitable[None]]


async def dies() -> None:
    raise KeyError("x")


class Forgetful:
    """A move journal with a bug in `load`."""

    async def load(self) -> None:
        raise KeyError("x")


class Engine:
    """Wraps an engine, and has a bug in its cleanup and in its GPU memory reader."""

    def __init__(self, found: PrunableEngine) -> None:
        self._found = found
        self.n_times = 0
        self.has_come_twice = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def forget_before(self, *_: Any, **__: Any) -> None:
        self.stumble()

    def gpu_memory_by_worker(self) -> dict[Any, int]:
        self.stumble()
        return {}

    def stumble(self) -> None:
        self.n_times += 1
        if self.n_times == 2:
            self._loop.call_soon_threadsafe(self.has_come_twice.set)
        raise KeyError("x")


class DyingTasks:
    def create(self, _: TaskServices) -> list[BackgroundTask]:
        return [dies()]


def in_a_background_task(backend: Backend) -> Backend:
    return replace(backend, background_tasks=cast("BackgroundTasks", DyingTasks()))


def in_moves(backend: Backend) -> Backend:
    return replace(backend, move_journal=cast("MoveJournal", Forgetful()))


def changed(folder: Path, change: Change) -> Settings:
    made = settings(folder, 0, timeouts=ClientTimeouts(*LONG))

    @asynccontextmanager
    async def backend(context: BackendContext) -> AsyncGenerator[Backend]:
        async with made.backend(context) as found:
            yield change(found)

    return replace(made, backend=backend, listen=None)


async def run_daemon(chosen: Settings, visit: Visit) -> None:
    ready = asyncio.Event()
    running = asyncio.ensure_future(serve(chosen, ready=ready.set))
    transport = httpx2.AsyncHTTPTransport(uds=str(chosen.folder / "rota.sock"))
    async with (
        asyncio.timeout(PATIENCE_S),
        httpx2.AsyncClient(transport=transport, base_url="http://rota") as client,
    ):
        await ready.wait()
        await visit(client)
        await client.post("/v1/stop")
        await running


@pytest.mark.parametrize("where", [in_a_background_task, in_moves])
def test_a_broken_daemon_with_a_standby_exits_with_the_reason(
    tmp_path: Path, where: Change
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S):
            chosen = changed(tmp_path, lambda backend: replace(where(backend), has_standby=True))
            await serve(chosen, ready=lambda: None)

    with pytest.raises(UnavailableError, match=r"a bug in rota \(KeyError\)"):
        asyncio.run(scenario())


@pytest.mark.parametrize("where", [in_a_background_task, in_moves])
def test_a_broken_daemon_without_a_standby_reports_itself_unhealthy(
    tmp_path: Path, where: Change
) -> None:
    async def visit(client: httpx2.AsyncClient) -> None:
        answer = await client.get("/healthz")
        status = await client.get("/v1/status")
        assert answer.status_code == 503
        assert BUG in answer.json()["reason"]
        assert BUG in status.json()["trouble"]

    with capture_logs() as lines:
        asyncio.run(run_daemon(changed(tmp_path, where), visit))
    [died] = [each for each in lines if "failed" in each["event"]]
    assert died["exc_info"].__traceback__ is not None


def test_tasks_that_no_job_depends_on_are_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rota.server.main, "PRUNE_S", 0.0)
    monkeypatch.setattr(gpu_memory, "LOOK_S", 0.0)
    engines: list[Engine] = []

    def change(backend: Backend) -> Backend:
        engines[:] = Engine(backend.engine), Engine(backend.engine)
        engine = cast("PrunableEngine", engines[0])
        return replace(backend, engine=engine, gpu_memory=engines[1])

    async def visit(client: httpx2.AsyncClient) -> None:
        for each in engines:
            await each.has_come_twice.wait()
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post("/v1/jobs", json=SLEEP | {"hold": True})).status_code == 201

    with capture_logs() as lines:
        asyncio.run(run_daemon(changed(tmp_path, change), visit))
    told = [each["event"] for each in lines if each["log_level"] == "error"]
    assert "pruning failed" in told
    assert told.count("gpu memory poll failed") == 1


def test_a_policy_that_does_not_return_is_told_and_delays_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_loop, "STALL_S", 0.0)
    pipe, file = tmp_path / "pipe", tmp_path / "hanging.py"
    os.mkfifo(pipe)
    file.write_text(HANGING_POLICY.format(pipe=str(pipe)))

    async def visit(client: httpx2.AsyncClient) -> None:
        assert (await client.post("/v1/jobs", json=SLEEP)).status_code == 201
        while (await client.get("/healthz")).json()["status"] == "ok":
            pass
        answer, status = await client.get("/healthz"), await client.get("/v1/status")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert "policy Hanging has not returned" in answer.json()["reason"]
        assert status.json()["scheduling"] == answer.json()["reason"]
        assert (await client.get("/readyz")).status_code == 200
        job = (await client.post("/v1/jobs", json=SLEEP)).json()["ids"][0]
        assert (await client.post(f"/v1/jobs/{job}/cancel")).is_success
        shown = await client.get(f"/v1/jobs/{job}")
        assert shown.json()["job"]["state"] == "cancelled"

    chosen = changed(tmp_path, lambda backend: backend)
    asyncio.run(run_daemon(replace(chosen, policy=f"{file}:Hanging"), visit))
    # The policy still waits. Let its thread end.
    pipe.write_text("")
