"""Jobs that go elsewhere: wherever it breaks off, it goes on, and never in two places."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.core.events import JobSubmitted
from rota.core.model import JobId
from rota.core.states import State
from rota.core.view import Rules
from rota.daemon.admission import Defaults
from rota.daemon.desk import Desk
from rota.daemon.launches import Site
from rota.daemon.move_files import Move, MoveFiles, MoveKeeper, Target
from rota.daemon.move_plans import Limits
from rota.daemon.move_secret import MoveSecret
from rota.daemon.moves import Moves
from rota.daemon.people import Caller
from rota.daemon.programs import Saved, pack
from rota.daemon.shell import Parts, Shell
from rota.errors import UnavailableError, UserError
from rota.policies.registry import parse
from rota.store.records import Submission
from rota.store.sqlite import SqliteStore
from rota.wire.jobs import JobRequest
from rota.wire.moves import MoveRequest, Parcel
from tests.builders import job
from tests.patience import PATIENCE_S

JOB = JobId("1q1ghcmf")
ANN = Caller("ann")


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

    def hand_over(self, _: Target, parcel: Parcel) -> str:
        if self.refusal is not None:
            raise self.refusal
        assert not self.is_ready_here()
        self.jobs.setdefault(parcel.key, "held")
        return f"there-{list(self.jobs).index(parcel.key)}"

    def let_go(self, _: Target, job_id: str) -> None:
        assert not self.is_ready_here()
        self._set(job_id, "ready")

    def take_back(self, _: Target, job_id: str, *, reason: str) -> None:
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
    def __init__(self, kept: MoveKeeper, crashes: Crashes) -> None:
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


def life(
    folder: Path,
    there: There,
    crashes: Crashes,
    *,
    do: Callable[[Desk, Moves], Awaitable[None]],
    drawer: Drawer | None = None,
) -> None:
    """One life of a daemon on this folder; on a cluster, with this Secret."""

    async def live() -> None:
        store = SqliteStore(folder / "rota.db")
        engine: Any = Nowhere()
        clock = asyncio.get_running_loop().time
        shell = Shell(Parts(store, engine, clock, Rules()), parse("fifo"))
        premises: Any = None
        site = Site(clock, lambda _: Defaults(), lambda _: {}, premises, premises)
        training: Any = None
        desk = Desk(shell, store, site=site, training=training)
        carrier: Any = Shaky(there, crashes)
        kept = MoveSecret(drawer) if drawer else MoveFiles(folder / "moves")
        keeper = ShakyKeeper(kept, crashes)
        moves = Moves(desk, keeper, carrier=carrier, limits=Limits(patience_s=0.0), origin="box")

        def is_ready_here() -> bool:
            known = shell.kernel.job(JOB)
            return known is not None and known.state is not State.HELD

        there.is_ready_here = is_ready_here
        await shell.start(lambda _: asyncio.sleep(0), listener=lambda _: None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        running = asyncio.ensure_future(moves.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await do(desk, moves)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await shell.close()
            store.close()

    def quiet(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(context.get("exception"), CrashError), context

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(quiet)
        runner.run(live())


async def submit(desk: Desk, moves: Moves, *, after: str = "0") -> None:
    saved = pack(Saved(JobRequest(["true"], gpus="1")))
    submission = Submission(JOB, "ann", 0, saved)
    told = desk.shell.tell_all([JobSubmitted(JOB, job(user="ann"))], [submission], actor="ann")
    await desk.shell.durable(told)
    await moves.plan(ANN, MoveRequest([JOB], "lab", "http://lab:1", "secret", after))


def until(
    crashes: Crashes, folder: Path, drawer: Drawer | None = None
) -> Callable[[Desk, Moves], Awaitable[None]]:
    """Until nothing is left to be moved, or the daemon is gone."""

    def is_left() -> bool:
        return bool(drawer.kept if drawer else list((folder / "moves").glob("*.json")))

    async def wait(_: Desk, __: Moves) -> None:
        # Nobody tells when a file is gone.
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
def test_a_daemon_may_die_at_any_moment(tmp_path: Path, after: int) -> None:
    there = There()
    life(tmp_path, there, Crashes(10_000), do=partial(submit, after="0.5s"))
    crashes = Crashes(after)
    life(tmp_path, there, crashes, do=until(crashes, tmp_path))
    assert crashes.happened, "there are fewer moments than that"
    sound = Crashes(10_000)
    life(tmp_path, there, sound, do=until(sound, tmp_path))
    assert outcome(tmp_path) == ("cancelled", "moved to lab as there-0")
    assert list(there.jobs.values()) == ["ready"]
    assert list((tmp_path / "moves").iterdir()) == []


@pytest.mark.parametrize("after", range(9))
def test_the_next_daemon_of_a_cluster_goes_on_with_an_empty_folder(
    tmp_path: Path, after: int
) -> None:
    there, drawer = There(), Drawer()
    life(tmp_path, there, Crashes(10_000), do=partial(submit, after="0.5s"), drawer=drawer)
    assert b"secret" in drawer.kept[JOB]
    for crashes in (Crashes(after), Crashes(10_000)):
        do = until(crashes, tmp_path, drawer)
        life(tmp_path, there, crashes, do=do, drawer=drawer)
    assert outcome(tmp_path) == ("cancelled", "moved to lab as there-0")
    assert list(there.jobs.values()) == ["ready"]
    assert drawer.kept == {}
    assert not (tmp_path / "moves").exists()


def test_a_secret_takes_only_so_much_and_nonsense_in_it_is_left_alone() -> None:
    async def scenario() -> None:
        drawer = Drawer()
        kept, target = MoveSecret(drawer), Target("lab", "http://lab:1", "x" * 16_000)
        moves = [Move(JobId(f"job-{n}"), "ann", target, due_s=0.0) for n in range(60)]
        with pytest.raises(UserError, match="as many jobs"):
            await kept.save(*moves)
        assert drawer.kept == {}
        await kept.save(*moves[:50])
        with pytest.raises(UserError, match="as many jobs"):
            await kept.save(*moves[50:])
        await kept.forget(moves[0].job_id)
        drawer.kept["nonsense"] = b"\xff"
        assert await MoveSecret(drawer).load() == moves[1:50]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (UserError("no such GPUs"), "stays here: lab did not take it: no such GPUs"),
        (UnavailableError("nobody there"), "stays here: lab cannot be reached: nobody there"),
    ],
)
def test_what_is_not_taken_is_released(tmp_path: Path, refusal: Exception, words: str) -> None:
    there, crashes = There(), Crashes(10_000)
    there.refusal = refusal

    async def do(desk: Desk, moves: Moves) -> None:
        await submit(desk, moves)
        await until(crashes, tmp_path)(desk, moves)

    life(tmp_path, there, crashes, do=do)
    assert outcome(tmp_path) == ("queued", words)
    assert there.jobs == {}


def test_a_job_that_is_cancelled_on_its_way_runs_nowhere(tmp_path: Path) -> None:
    there, crashes = There(), Crashes(10_000)

    async def do(desk: Desk, moves: Moves) -> None:
        loop = asyncio.get_running_loop()
        hand_over = there.hand_over

        def and_cancel(target: Target, parcel: Parcel) -> str:
            asyncio.run_coroutine_threadsafe(desk.cancel(ANN, JOB), loop).result(PATIENCE_S)
            return hand_over(target, parcel)

        there.hand_over = and_cancel  # type: ignore[method-assign]
        await submit(desk, moves)
        await until(crashes, tmp_path)(desk, moves)

    life(tmp_path, there, crashes, do=do)
    assert outcome(tmp_path) == ("cancelled", "cancelled by ann")
    assert list(there.jobs.values()) == ["cancelled"]


def test_a_bug_with_one_is_told_with_its_job_and_it_is_tried_again(tmp_path: Path) -> None:
    there, crashes = There(), Crashes(10_000)
    hand_over = there.hand_over

    def stumble(*_: Any) -> str:
        there.hand_over = hand_over  # type: ignore[method-assign]
        raise KeyError("x")

    there.hand_over = stumble  # type: ignore[method-assign]

    async def do(desk: Desk, moves: Moves) -> None:
        await submit(desk, moves)
        await until(crashes, tmp_path)(desk, moves)

    with capture_logs() as lines:
        life(tmp_path, there, crashes, do=do)
    [told] = [each for each in lines if each["log_level"] == "error"]
    assert (told["job"], type(told["exc_info"])) == (JOB, KeyError)
    assert list(there.jobs.values()) == ["ready"]
