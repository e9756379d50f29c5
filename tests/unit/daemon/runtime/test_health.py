"""A disk that fails, and comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

import pytest

from rota.daemon import health
from rota.daemon.health import Health
from rota.errors import StoreError, Trouble, UnavailableError, UserError
from rota.store.memory import MemoryStore

FULL = StoreError(Trouble.FULL, "rota.db: no space left", "make room")


class Failing(MemoryStore):
    """Cannot be written so many times."""

    def __init__(self, *, times: int) -> None:
        super().__init__()
        self.left = times

    def resume(self) -> Future[None]:
        if not self.left:
            return super().resume()
        self.left -= 1
        failed: Future[None] = Future()
        failed.set_exception(FULL)
        return failed


NO_ROOM = OSError(28, "No space left on device", "/var/lib/rota/engine")


def run(
    store: MemoryStore,
    test: Callable[[Health, list[str]], Awaitable[None]],
    troubles: Sequence[Exception] = (NO_ROOM,),
) -> list[str]:
    """What was wrong each time that all began anew; the first times it fails with these."""
    begun: list[str] = []

    async def scenario() -> None:
        async def begin_anew() -> None:
            begun.append(subject.trouble)
            if len(begun) <= len(troubles):
                raise troubles[len(begun) - 1]
            subject.begin()

        subject = Health(store, begin_anew=begin_anew)
        try:
            await test(subject, begun)
        finally:
            await subject.close()

    asyncio.run(scenario())
    return begun


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RETRY_S", 0.0)


async def until_sound(subject: Health) -> None:
    async with asyncio.timeout(60):
        while subject.trouble:  # noqa: ASYNC110 - nobody is told; it is a matter of turns
            await asyncio.sleep(0)


def test_it_begins_anew_until_nothing_fails() -> None:
    async def scenario(subject: Health, _: list[str]) -> None:
        subject.require()
        subject.fail(FULL)
        with pytest.raises(UnavailableError, match="no space left; make room"):
            subject.require()
        await until_sound(subject)
        subject.require()

    engine_is_full = "/var/lib/rota/engine: no space left on device; rota goes on by itself"
    first, second = run(Failing(times=3), scenario)
    assert first == "rota.db: no space left; make room"
    assert second.startswith(engine_is_full)


def test_it_is_mended_once_however_many_notice() -> None:
    async def scenario(subject: Health, _: list[str]) -> None:
        for _number in range(5):
            subject.fail(FULL)
        await until_sound(subject)
        subject.fail(FULL)
        await until_sound(subject)

    assert len(run(Failing(times=0), scenario)) == 3


def test_a_bug_does_not_pass_by_itself() -> None:
    async def scenario(subject: Health, begun: list[str]) -> None:
        subject.break_down(KeyError("x"))
        subject.fail(FULL)
        await asyncio.sleep(0)
        subject.begin()
        assert "a bug in rota (KeyError)" in subject.trouble
        assert subject.broken.is_set()
        assert begun == []

    run(Failing(times=0), scenario)


def test_what_somebody_else_can_mend_is_waited_for() -> None:
    async def scenario(subject: Health, _: list[str]) -> None:
        subject.fail(FULL)
        await until_sound(subject)
        assert not subject.broken.is_set()

    missing = UserError("the cluster does not know what a TrainingJob is")
    assert run(Failing(times=0), scenario, [missing])[1] == str(missing)


def test_a_bug_while_it_begins_anew_is_noticed() -> None:
    async def scenario(subject: Health, _: list[str]) -> None:
        subject.fail(FULL)
        async with asyncio.timeout(60):
            await subject.broken.wait()
        assert "a bug in rota (KeyError)" in subject.trouble

    run(Failing(times=0), scenario, [KeyError("x")])
