"""The settings that a daemon shows to its callers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.core.model.job import JobId
from rota.daemon.access.authorization import AccessScope, Caller
from rota.daemon.cluster_service import ClusterService, DaemonAddress, DaemonSetup
from rota.daemon.errors import ForbiddenError
from rota.wire.daemon import HIDDEN, SettingView

SETTINGS = (
    SettingView("policy", "fifo", "default"),
    SettingView("defaults.env.KEY", "secret", "file"),
    SettingView("projects.vision.defaults.env.KEY", "secret", "file"),
    SettingView("grace", 30.0, "default"),
)


def values(caller: Caller) -> list[object]:
    async def ask() -> list[object]:
        nothing: Any = None
        setup = DaemonSetup(
            "fake", DaemonAddress("", nothing), "fifo", Path("policy"), settings=SETTINGS
        )
        service = ClusterService(nothing, nothing, gpus=nothing, setup=setup, clock=lambda: 0.0)
        return [each.value for each in service.settings(caller)]

    return asyncio.run(ask())


def test_only_administrators_see_the_values_of_variables() -> None:
    assert values(Caller("ada", is_admin=True)) == ["fifo", "secret", "secret", 30.0]
    assert values(Caller("bob")) == ["fifo", HIDDEN, HIDDEN, 30.0]


def test_the_token_of_a_job_sees_no_settings() -> None:
    with pytest.raises(ForbiddenError):
        values(Caller("ada", is_admin=True, scope=AccessScope.JOB, job_id=JobId("1q1ghcmf")))
