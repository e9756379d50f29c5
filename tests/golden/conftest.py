"""Runs commands with a fake client and a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from rota.cli.main import run
from tests.golden.fake_client import NOW, FakeClient

Rota = Callable[..., str]


@pytest.fixture
def rota(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Generator[Rota]:
    """What a command prints, where it succeeds."""

    def call(*arguments: str) -> str:
        assert run(arguments) == 0
        return capfdbinary.readouterr().out.decode()

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("rota.client.Client", FakeClient)
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setattr("platform.python_version", lambda: "3.11.0")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.release", lambda: "6.1.0")
    yield call
    monkeypatch.undo()
    time.tzset()
