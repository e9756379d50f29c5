"""`rota down` waits until the stopped daemon is gone."""

from types import SimpleNamespace
from typing import Any

import pytest

from rota.cli.commands import daemon
from rota.client.endpoint import NoDaemonError
from rota.errors import UnavailableError

OLD, NEW = 1, 2


def asked(*answers: int | Exception) -> int:
    """How often the daemon was asked before it was taken to be gone."""
    left = list(answers)

    def status() -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(pid=answer)

    rota: Any = SimpleNamespace(status=status)
    daemon._wait_for_api_close(rota, OLD)  # pyright: ignore[reportPrivateUsage]
    return len(answers) - len(left)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "POLL_S", 0.0)


def test_down_waits_until_no_daemon_answers() -> None:
    assert asked(OLD, UnavailableError("it broke"), OLD, NoDaemonError("nobody"), OLD) == 4


def test_down_returns_if_another_daemon_answers() -> None:
    assert asked(OLD, NEW, NEW) == 2
