"""`rota down` returns when the daemon that it ended is gone, whoever answers then."""

from types import SimpleNamespace
from typing import Any

import pytest

from rota.cli import box
from rota.client.find import NoDaemonError
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
    box._wait_for_silence(rota, OLD)  # pyright: ignore[reportPrivateUsage]
    return len(answers) - len(left)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "PAUSE_S", 0.0)


def test_until_nobody_answers() -> None:
    assert asked(OLD, UnavailableError("it broke"), OLD, NoDaemonError("nobody"), OLD) == 4


def test_a_supervisor_starts_another_at_once() -> None:
    assert asked(OLD, NEW, NEW) == 2
