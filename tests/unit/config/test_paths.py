"""Tests of the paths of rota's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.config.paths import SYSTEM_STATE, state_dir, store_file


@pytest.mark.parametrize(
    ("uid", "environment", "expected"),
    [
        (0, {}, SYSTEM_STATE),
        (0, {"XDG_DATA_HOME": "/data"}, SYSTEM_STATE),
        (0, {"ROTA_HOME": "/here"}, Path("/here")),
        (1000, {"ROTA_HOME": "/here", "XDG_DATA_HOME": "/data"}, Path("/here")),
        (1000, {"XDG_DATA_HOME": "/data"}, Path("/data/rota")),
        (1000, {"XDG_DATA_HOME": "data"}, Path("/home/user-1/.local/share/rota")),
        (1000, {"XDG_DATA_HOME": ""}, Path("/home/user-1/.local/share/rota")),
        (1000, {"ROTA_HOME": ""}, Path("/home/user-1/.local/share/rota")),
    ],
)
def test_state_dir(
    monkeypatch: pytest.MonkeyPatch, uid: int, environment: dict[str, str], expected: Path
):
    for name in ("ROTA_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/user-1", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert state_dir() == expected
    assert store_file() == expected / "rota.db"
