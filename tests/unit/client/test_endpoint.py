"""Which daemon is meant, and what to do if it does not run."""

import os
from pathlib import Path

import pytest

from rota.client import endpoint


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of the machine's daemon, seen by a user who is not root."""
    for name in ("ROTA_HOME", "ROTA_URL", "ROTA_CONTEXT", "ROTA_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folder = tmp_path / "machine"
    monkeypatch.setattr(endpoint, "SYSTEM_STATE", folder)
    folder.mkdir()
    return folder


def test_without_a_machine_daemon_the_user_starts_one(machine: Path) -> None:
    found = endpoint.find()
    assert not found.socket.startswith(str(machine))
    assert "rota up" in endpoint.no_daemon(found).hint


def test_a_machine_daemon_that_is_down_is_named(machine: Path) -> None:
    (machine / "rota.db").touch()
    found = endpoint.find()
    assert found.socket == str(machine / "rota.sock")
    error = endpoint.no_daemon(found)
    assert "the daemon of this machine is down" in error.message
    assert "administrator" in error.hint
    assert "rota up" not in error.hint


def test_the_users_own_running_daemon_comes_first(machine: Path, tmp_path: Path) -> None:
    (machine / "rota.sock").touch()
    own = tmp_path / "data" / "rota" / "rota.sock"
    own.parent.mkdir(parents=True)
    own.touch()
    assert endpoint.find().socket == str(own)
