"""Recovery from a failed disk."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

import pytest

from rota.daemon.runtime import health
from rota.daemon.runtime.health import DaemonHealth
from rota.errors import StoreError, StoreErrorKind, UnavailableError, UserError
from rota.store.memory import MemoryStore
from tests.support.timeouts import PATIENCE_S

FULL = StoreError(StoreErrorKind.FULL, "rota.db: no space left", "make room")


class Failing(MemoryStore):
    """Rejects the first writes."""

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
    test: Callable[[DaemonHealth, list[str]], Awaitable[None]],
    troubles: Sequence[Exception] = (NO_ROOM,),
) -> list[str]:
    """The trouble at each recovery. The first recoveries fail with `troubles`."""
    begun: list[str] = []

    async def scenario() -> None:
        async def recover() -> None:
            begun.append(subject.trouble)
            if len(begun) <= len(troubles):
                raise troubles[len(begun) - 1]
            subject.mark_healthy()

        subject = DaemonHealth(store, recover=recover)
        try:
            await test(subject, begun)
        finally:
            await subject.close()

    asyncio.run(scenario())
    return begun


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RETRY_S", 0.0)


async def until_sound(subject: DaemonHealth) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while subject.trouble:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)


def test_recovery_is_retried_until_it_succeeds() -> None:
    async def scenario(subject: DaemonHealth, _: list[str]) -> None:
        subject.require()
        subject.fail(FULL)
        with pytest.raises(UnavailableError, match="no space left; make room"):
            subject.require()
        await until_sound(subject)
        subject.require()

    engine_is_full = "/var/lib/rota/engine: no space left on device; rota retries and continues"
    first, second = run(Failing(times=3), scenario)
    assert first == "rota.db: no space left; make room"
    assert second.startswith(engine_is_full)


def test_several_failures_start_one_recovery() -> None:
    async def scenario(subject: DaemonHealth, _: list[str]) -> None:
        for _number in range(5):
            subject.fail(FULL)
        await until_sound(subject)
        subject.fail(FULL)
        await until_sound(subject)

    assert len(run(Failing(times=0), scenario)) == 3


def test_a_bug_stays_until_a_restart() -> None:
    async def scenario(subject: DaemonHealth, begun: list[str]) -> None:
        subject.fail_permanently(KeyError("x"))
        subject.fail(FULL)
        await asyncio.sleep(0)
        subject.mark_healthy()
        assert "a bug in rota (KeyError)" in subject.trouble
        assert subject.broken.is_set()
        assert begun == []

    run(Failing(times=0), scenario)


def test_an_error_of_the_user_during_recovery_is_retried() -> None:
    async def scenario(subject: DaemonHealth, _: list[str]) -> None:
        subject.fail(FULL)
        await until_sound(subject)
        assert not subject.broken.is_set()

    missing = UserError("the cluster has no CRD for TrainingJobs")
    assert run(Failing(times=0), scenario, [missing])[1] == str(missing)


def test_a_bug_during_recovery_breaks_the_daemon() -> None:
    async def scenario(subject: DaemonHealth, _: list[str]) -> None:
        subject.fail(FULL)
        async with asyncio.timeout(PATIENCE_S):
            await subject.broken.wait()
        assert "a bug in rota (KeyError)" in subject.trouble

    run(Failing(times=0), scenario, [KeyError("x")])
