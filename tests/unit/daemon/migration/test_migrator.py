"""Moves of jobs: they continue after a crash at any step, and a job never runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobSubmitted
from rota.core.model.job import JobId
from rota.core.scheduling.view import Rules
from rota.daemon.access.authorization import Caller
from rota.daemon.jobs.admission import Defaults
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.job_selection import JobAction
from rota.daemon.jobs.job_service import JobService, JobViewSources
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.jobs.views import WaitReasons
from rota.daemon.launch.launcher import SiteConfig, WorkerCredentials
from rota.daemon.launch.programs import SubmittedProgram, pack
from rota.daemon.migration.file_journal import FileMoveJournal
from rota.daemon.migration.migrator import Migrator, TransferBuilder
from rota.daemon.migration.planned_moves import PlannedMoves
from rota.daemon.migration.requests import MigrationLimits, MigrationTarget, Move, MoveJournal
from rota.daemon.migration.secret_journal import SecretMoveJournal
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.errors import UnavailableError, UserError
from rota.policies.registry import parse
from rota.store.records import Submission
from rota.store.sqlite.store import SqliteStore
from rota.wire.jobs import JobRequest
from rota.wire.moves import JobTransfer, MoveRequest
from tests.support.builders import job
from tests.support.timeouts import PATIENCE_S

JOB = JobId("1q1ghcmf")
ANN = Caller("ann")
HOUR_S = 3600.0


class CrashError(Exception):
    """The process is gone."""


class Crashes:
    """Lets so many things happen, and then no more."""

    def __init__(self, after: int) -> None:
        self._left = after
        self.happened = False

    def step(self) -> None:
        if self._left == 0:
            self.happened = True
            raise CrashError
        self._left -= 1


class There:
    """Another daemon: its jobs by the key that they came with, and whether they may run."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.refusal: Exception | None = None
        self.is_ready_here: Callable[[], bool] = lambda: False

    def hand_over(self, _: MigrationTarget, transfer: JobTransfer) -> str:
        if self.refusal is not None:
            raise self.refusal
        assert not self.is_ready_here()
        self.jobs.setdefault(transfer.key, "held")
        return f"there-{list(self.jobs).index(transfer.key)}"

    def let_go(self, _: MigrationTarget, job_id: str) -> None:
        assert not self.is_ready_here()
        self._set(job_id, "ready")

    def take_back(self, _: MigrationTarget, job_id: str, *, reason: str) -> None:
        assert reason
        self._set(job_id, "cancelled")

    def _set(self, job_id: str, state: str) -> None:
        self.jobs[list(self.jobs)[int(job_id.removeprefix("there-"))]] = state


class Shaky:
    """A carrier whose daemon may die before a word leaves, or before its answer is heard."""

    def __init__(self, there: There, crashes: Crashes) -> None:
        self._there = there
        self._crashes = crashes

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            self._crashes.step()
            answer = getattr(self._there, name)(*words, **more)
            self._crashes.step()
            return answer

        return call


class ShakyKeeper:
    def __init__(self, kept: MoveJournal, crashes: Crashes) -> None:
        self._kept = kept
        self._crashes = crashes

    async def load(self) -> list[Move]:
        return await self._kept.load()

    async def save(self, *moves: Move) -> None:
        self._crashes.step()
        await self._kept.save(*moves)
        self._crashes.step()

    async def forget(self, job_id: JobId) -> None:
        self._crashes.step()
        await self._kept.forget(job_id)


class Drawer:
    """A Secret in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def contents(self) -> dict[str, bytes]:
        return dict(self.kept)

    async def put(self, contents: Mapping[str, bytes | None]) -> None:
        for name, content in contents.items():
            if content is None:
                self.kept.pop(name, None)
            else:
                self.kept[name] = content


class Nowhere:
    """An engine without nodes: every job waits."""

    def __getattr__(self, _: str) -> Callable[..., Awaitable[None]]:
        async def nothing(*_: Any, **__: Any) -> None:
            pass

        return nothing

    def inventory(self) -> tuple[()]:
        return ()


@dataclass(frozen=True)
class Here:
    """The daemon that jobs leave."""

    controller: Controller
    job_service: JobService


def life(
    folder: Path,
    there: There,
    crashes: Crashes,
    *,
    do: Callable[[Here, Migrator], Awaitable[None]],
    secret: Drawer | None = None,
    later_s: float = 0.0,
) -> None:
    """One life of a daemon on this folder, so much later; on a cluster, with this Secret."""

    async def live() -> None:
        store = SqliteStore(folder / "rota.db")
        engine: Any = Nowhere()
        loop = asyncio.get_running_loop()

        def clock() -> float:
            return loop.time() + later_s

        controller = Controller(
            ControllerDependencies(store, engine, clock, Rules()), parse("fifo")
        )
        nothing: Any = None
        site = SiteConfig(
            clock, lambda _: Defaults(), WorkerCredentials("", nothing), nothing, nothing
        )
        transport: Any = Shaky(there, crashes)
        kept = SecretMoveJournal(secret) if secret else FileMoveJournal(folder / "moves")
        planned = PlannedMoves(ShakyKeeper(kept, crashes), clock)
        directory = JobDirectory(controller, store)
        submissions = SubmissionService(controller, store, directory=directory, site=site)
        sources = JobViewSources(
            Forecaster(controller, clock, engine_of=nothing),
            WaitReasons(controller.scheduling_loop, planned),
            nothing,
            nothing,
        )
        job_service = JobService(controller, directory, store=store, sources=sources, clock=clock)
        moves = Migrator(
            controller,
            directory,
            job_service=job_service,
            planned=planned,
            transfers=TransferBuilder(directory, submissions, snapshots=nothing, origin="box"),
            transport=transport,
            limits=MigrationLimits(patience_s=0.0),
            clock=clock,
        )

        def is_ready_here() -> bool:
            known = controller.job(JOB)
            return known is not None and known.state is not JobState.HELD

        there.is_ready_here = is_ready_here
        await controller.start(lambda _: asyncio.sleep(0), listeners=())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        running = asyncio.ensure_future(moves.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await do(Here(controller, job_service), moves)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await controller.close()
            store.close()

    def quiet(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(context.get("exception"), CrashError), context

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(quiet)
        runner.run(live())


async def submit(here: Here, moves: Migrator, *, after: str = "0") -> None:
    saved = pack(SubmittedProgram(JobRequest(["true"], gpus="1")))
    submission = Submission(JOB, "ann", 0, saved)
    told = here.controller.apply_events(
        [JobSubmitted(JOB, job(user="ann"))], [submission], actor="ann"
    )
    await here.controller.durable(told)
    await moves.plan(ANN, MoveRequest([JOB], "lab", "http://lab:1", "secret", after))


def until(
    crashes: Crashes, folder: Path, secret: Drawer | None = None
) -> Callable[[Here, Migrator], Awaitable[None]]:
    """Until nothing is left to be moved, or the daemon is gone."""

    def is_left() -> bool:
        return bool(secret.kept if secret else list((folder / "moves").glob("*.json")))

    async def wait(_: Here, __: Migrator) -> None:
        # There is no event for a deleted file.
        while not crashes.happened and is_left():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    return wait


def outcome(folder: Path) -> tuple[str, str]:
    store = SqliteStore(folder / "rota.db")
    try:
        found = store.job(JOB)
        assert found is not None
        return found.state.value, store.story(JOB)[-1].transition.reason
    finally:
        store.close()


@pytest.mark.parametrize("after", range(9))
def test_crash_at_any_step_continues_the_move(tmp_path: Path, after: int) -> None:
    there = There()
    life(tmp_path, there, Crashes(10_000), do=partial(submit, after="1h"))
    crashes = Crashes(after)
    life(tmp_path, there, crashes, do=until(crashes, tmp_path), later_s=HOUR_S)
    assert crashes.happened, "there are fewer moments than that"
    sound = Crashes(10_000)
    life(tmp_path, there, sound, do=until(sound, tmp_path), later_s=HOUR_S)
    assert outcome(tmp_path) == ("cancelled", "moved to lab as there-0")
    assert list(there.jobs.values()) == ["ready"]
    assert list((tmp_path / "moves").iterdir()) == []


@pytest.mark.parametrize("after", range(9))
def test_another_replica_continues_the_move(tmp_path: Path, after: int) -> None:
    there, secret = There(), Drawer()
    life(tmp_path, there, Crashes(10_000), do=partial(submit, after="1h"), secret=secret)
    assert b"secret" in secret.kept[JOB]
    for crashes in (Crashes(after), Crashes(10_000)):
        do = until(crashes, tmp_path, secret)
        life(tmp_path, there, crashes, do=do, secret=secret, later_s=HOUR_S)
    assert outcome(tmp_path) == ("cancelled", "moved to lab as there-0")
    assert list(there.jobs.values()) == ["ready"]
    assert secret.kept == {}
    assert not (tmp_path / "moves").exists()


def test_secret_journal_is_limited_and_ignores_invalid_entries() -> None:
    async def scenario() -> None:
        secret = Drawer()
        kept, target = (
            SecretMoveJournal(secret),
            MigrationTarget("lab", "http://lab:1", "x" * 16_000),
        )
        moves = [Move(JobId(f"job-{n}"), "ann", target, due_s=0.0) for n in range(60)]
        with pytest.raises(UserError, match="too many planned moves"):
            await kept.save(*moves)
        assert secret.kept == {}
        await kept.save(*moves[:50])
        with pytest.raises(UserError, match="too many planned moves"):
            await kept.save(*moves[50:])
        await kept.forget(moves[0].job_id)
        secret.kept["nonsense"] = b"\xff"
        assert await SecretMoveJournal(secret).load() == moves[1:50]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (UserError("no such GPUs"), "not moved: lab refused the job: no such GPUs"),
        (UnavailableError("nobody there"), "not moved: cannot reach lab: nobody there"),
    ],
)
def test_refused_job_is_released(tmp_path: Path, refusal: Exception, words: str) -> None:
    there, crashes = There(), Crashes(10_000)
    there.refusal = refusal

    async def do(here: Here, moves: Migrator) -> None:
        await submit(here, moves)
        await until(crashes, tmp_path)(here, moves)

    life(tmp_path, there, crashes, do=do)
    assert outcome(tmp_path) == ("queued", words)
    assert there.jobs == {}


def test_job_cancelled_during_a_move_runs_nowhere(tmp_path: Path) -> None:
    there, crashes = There(), Crashes(10_000)

    async def do(here: Here, moves: Migrator) -> None:
        loop = asyncio.get_running_loop()
        hand_over = there.hand_over

        def and_cancel(target: MigrationTarget, transfer: JobTransfer) -> str:
            asyncio.run_coroutine_threadsafe(
                here.job_service.change_one(ANN, JOB, action=JobAction.CANCEL), loop
            ).result(PATIENCE_S)
            return hand_over(target, transfer)

        there.hand_over = and_cancel  # type: ignore[method-assign]
        await submit(here, moves)
        await until(crashes, tmp_path)(here, moves)

    life(tmp_path, there, crashes, do=do)
    assert outcome(tmp_path) == ("cancelled", "cancelled by ann")
    assert list(there.jobs.values()) == ["cancelled"]


def test_unexpected_error_is_logged_with_the_job_and_retried(tmp_path: Path) -> None:
    there, crashes = There(), Crashes(10_000)
    hand_over = there.hand_over

    def stumble(*_: Any) -> str:
        there.hand_over = hand_over  # type: ignore[method-assign]
        raise KeyError("x")

    there.hand_over = stumble  # type: ignore[method-assign]

    async def do(here: Here, moves: Migrator) -> None:
        await submit(here, moves)
        await until(crashes, tmp_path)(here, moves)

    with capture_logs() as lines:
        life(tmp_path, there, crashes, do=do)
    [told] = [each for each in lines if each["log_level"] == "error"]
    assert (told["job"], type(told["exc_info"])) == (JOB, KeyError)
    assert list(there.jobs.values()) == ["ready"]
