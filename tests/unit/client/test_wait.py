"""Waiting for a job across restarts of the daemon."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rota.client import client
from rota.client.client import Client
from rota.client.endpoint import NoDaemonError
from rota.client.log_follow import ReconnectDeadline
from rota.wire.jobs import StoryEntry


class Flaky(Client):
    """Answers with these states in turn; None: no daemon."""

    def __init__(self, *states: str | None) -> None:
        super().__init__("unix:///nowhere")
        self._states = iter(states)

    def show(self, job: str) -> Any:
        state = next(self._states)
        if state is None:
            raise NoDaemonError("nobody")
        return SimpleNamespace(job=SimpleNamespace(id=job, state=state))

    def _events(
        self, job_id: str, *, after: int | None, deadline: ReconnectDeadline
    ) -> Iterator[StoryEntry]:
        assert (job_id, after, isinstance(deadline, ReconnectDeadline)) == ("job", None, True)
        return iter(())


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0.0)


def test_wait_survives_a_restart_of_the_daemon() -> None:
    assert Flaky("running", None, None, "running", None, "failed").wait("job").state == "failed"


def test_missing_daemon_raises_at_once() -> None:
    with pytest.raises(NoDaemonError):
        Flaky(None, "running").wait("job")


def test_daemon_that_stays_away_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ABSENCE_S", -1.0)
    with pytest.raises(NoDaemonError):
        Flaky("running", None, "failed").wait("job")
