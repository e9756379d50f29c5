"""Rejections of TrainingJobs in their status and in events."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.errors import UnavailableError
from rota.operator.rejections import RejectionReporter, is_rejected, recreated_reason

META = {"name": "mine", "labels": {"rota.dev/job": "1q1ghcmf"}, "generation": 2}


def test_a_restored_object_gets_the_outcome_of_its_job() -> None:
    known = {JobId("1q1ghcmf"): JobState.SUCCEEDED}
    assert "job 1q1ghcmf has succeeded" in recreated_reason(META, known)
    assert "job 1q1ghcmf is unknown" in recreated_reason(META, {})


def test_a_rejection_lasts_until_an_edit() -> None:
    assert is_rejected({"metadata": META, "status": {"state": "refused", "observedGeneration": 2}})
    for status in ({"state": "refused", "observedGeneration": 1}, {"state": "held"}, {}):
        assert not is_rejected({"metadata": META, "status": status})


class StatusRefusingClient:
    """Stores no status."""

    async def patch_status(self, *_: object) -> None: ...

    async def event(self, *_: object, **__: object) -> None: ...


def test_a_rejection_is_remembered_if_the_status_is_refused() -> None:
    """Otherwise every write to the object, including our own, would be another submit."""
    resources: Any = StatusRefusingClient()
    rejections = RejectionReporter(resources, lambda: 1.0)
    found = {"metadata": META | {"uid": "u"}, "status": {}}
    assert not rejections.has_rejected(found)
    asyncio.run(rejections.reject(found, "not in this lab"))
    assert rejections.has_rejected(found)
    assert not rejections.has_rejected({"metadata": META | {"uid": "u", "generation": 3}})
    rejections.forget("u")
    assert not rejections.has_rejected(found)


def test_a_rejection_that_was_not_written_is_written_later() -> None:
    async def scenario() -> None:
        troubles: list[Exception] = [UnavailableError("not now")]
        told: list[str] = []

        async def patch_status(name: str, _: object) -> None:
            if troubles:
                raise troubles.pop()
            told.append(name)

        async def event(*_: object, **__: object) -> None:
            pass

        resources: Any = SimpleNamespace(patch_status=patch_status, event=event)
        rejections, found = (
            RejectionReporter(resources, lambda: 0.0),
            {"metadata": {**META, "uid": "u"}},
        )
        with pytest.raises(UnavailableError):
            await rejections.reject(found, "no")
        assert not rejections.has_rejected(found)
        await rejections.reject(found, "no")
        assert rejections.has_rejected(found)
        assert told == ["mine"]

    asyncio.run(scenario())
