"""The inventory is read again after a failed read."""

import asyncio

import pytest
from structlog.testing import capture_logs

from rota.core.model.node import Node, NodeId
from rota.daemon.runtime import node_watcher
from rota.errors import RotaError

HERE = Node(NodeId("here"), ())


class Flaky:
    """Fails so, one after the other, and then no more."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)

    def inventory(self) -> tuple[Node, ...]:
        if self.failures:
            raise self.failures.pop(0)
        return (HERE,)


def test_a_failed_read_is_logged_once_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watcher, "LOOK_S", 0.0)
    full = OSError(24, "Too many open files")
    engine = Flaky(full, full, RotaError("no answer"))

    async def scenario() -> tuple[Node, ...]:
        seen: asyncio.Queue[tuple[Node, ...]] = asyncio.Queue()
        async with asyncio.timeout(60):
            watching = asyncio.ensure_future(node_watcher.watch(engine, seen.put_nowait))
            first = await seen.get()
            assert not watching.done()
            watching.cancel()
            return first

    with capture_logs() as logs:
        assert asyncio.run(scenario()) == (HERE,)
    assert [each["error"] for each in logs] == ["[Errno 24] Too many open files", "no answer"]
