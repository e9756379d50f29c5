"""What is told of objects that are no jobs of ours."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.model import JobId
from rota.core.states import State
from rota.daemon.verdicts import Verdicts, is_refused, why_put_back
from rota.errors import UnavailableError

META = {"name": "mine", "labels": {"rota.dev/job": "1q1ghcmf"}, "generation": 2}


def test_an_object_that_was_put_back_is_told_what_became_of_its_job() -> None:
    known = {JobId("1q1ghcmf"): State.SUCCEEDED}
    assert "job 1q1ghcmf has succeeded" in why_put_back(META, known)
    assert "nobody knows job 1q1ghcmf" in why_put_back(META, {})


def test_a_refusal_holds_until_an_edit() -> None:
    assert is_refused({"metadata": META, "status": {"state": "refused", "observedGeneration": 2}})
    for status in ({"state": "refused", "observedGeneration": 1}, {"state": "held"}, {}):
        assert not is_refused({"metadata": META, "status": status})


class Mute:
    """Of the objects of a cluster: these take no status."""

    async def tell(self, *_: object) -> None: ...

    async def event(self, *_: object, **__: object) -> None: ...


def test_a_refusal_that_no_status_could_take_is_not_forgotten() -> None:
    """Else each write to the object, our own included, would be another submit."""
    resources: Any = Mute()
    verdicts = Verdicts(resources, lambda: 1.0)
    found = {"metadata": META | {"uid": "u"}, "status": {}}
    assert not verdicts.has_refused(found)
    asyncio.run(verdicts.refuse(found, "not in this lab"))
    assert verdicts.has_refused(found)
    assert not verdicts.has_refused({"metadata": META | {"uid": "u", "generation": 3}})
    verdicts.forget("u")
    assert not verdicts.has_refused(found)


def test_a_refusal_that_could_not_be_told_is_told_later() -> None:
    async def scenario() -> None:
        troubles: list[Exception] = [UnavailableError("not now")]
        told: list[str] = []

        async def tell(name: str, _: object) -> None:
            if troubles:
                raise troubles.pop()
            told.append(name)

        async def event(*_: object, **__: object) -> None:
            pass

        resources: Any = SimpleNamespace(tell=tell, event=event)
        verdicts, found = Verdicts(resources, lambda: 0.0), {"metadata": {**META, "uid": "u"}}
        with pytest.raises(UnavailableError):
            await verdicts.refuse(found, "no")
        assert not verdicts.has_refused(found)
        await verdicts.refuse(found, "no")
        assert verdicts.has_refused(found)
        assert told == ["mine"]

    asyncio.run(scenario())
