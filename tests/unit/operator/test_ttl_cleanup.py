"""Which objects of jobs that are over a cluster keeps."""

import asyncio
from typing import Any, Literal

import pytest

from rota.daemon import ended_objects
from rota.daemon.ended_objects import EndedObjects, Keep
from rota.engines.kubernetes.api import Change
from rota.errors import UnavailableError
from rota.store.training_jobs import ACCEPTED, SEAL, moment, seal

KEY = b"key"
NOW = 1_000_000.0


def made(name: str, ended_s: float | None, **meta: Any) -> dict[str, Any]:
    """An object of ours, whose job ended so long ago."""
    notes = {ACCEPTED: "job", SEAL: seal(KEY, name=name, text="job")}
    over = {"type": "Failed", "status": "True", "lastTransitionTime": moment(NOW - (ended_s or 0))}
    runs = {"type": "Running", "status": "True", "lastTransitionTime": moment(0.0)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": notes, **meta},
        "status": {"conditions": [runs if ended_s is None else over]},
    }


class House:
    """Looks `n_looks` times, and remembers what was removed; it fails `n_failures` times."""

    def __init__(self, keep: Keep, monkeypatch: pytest.MonkeyPatch, *, n_failures: int = 0) -> None:
        self.removed: list[str] = []
        self._n_failures = n_failures
        self._looks = 0
        self.ended = EndedObjects(self._delete, keep, key=KEY, clock=lambda: NOW)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    def hear(self, *found: dict[str, Any], kind: Literal["ADDED", "DELETED"] = "ADDED") -> None:
        for each in found:
            self.ended.hear(Change(kind, each))

    def looks(self, n_times: int = 1) -> list[str]:
        self._looks = n_times
        with pytest.raises(TimeoutError):
            asyncio.run(self.ended.run())
        return self.removed

    async def _sleep(self, seconds: float) -> None:
        assert seconds == ended_objects.LOOK_S
        if self._looks == 0:
            raise TimeoutError
        self._looks -= 1

    async def _delete(self, name: str, uid: str) -> None:
        assert uid == f"uid-{name}"
        if self._n_failures:
            self._n_failures -= 1
            raise UnavailableError("not now")
        self.removed.append(name)
        self.hear(made(name, 0), kind="DELETED")


def test_what_is_over_for_too_long_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(Keep(for_s=100, at_most=10), monkeypatch)
    house.hear(made("old", 101), made("young", 99), made("running", None), made("older", 500))
    assert house.looks() == ["older", "old"]


def test_of_too_many_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(Keep(for_s=1000, at_most=2), monkeypatch)
    house.hear(*(made(f"job-{age}", age) for age in (10, 40, 30, 20)), made("running", None))
    assert house.looks() == ["job-40", "job-30"]


def test_what_people_made_and_what_is_going_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(Keep(for_s=0, at_most=0), monkeypatch)
    theirs = made("theirs", 500, annotations={})
    copied = made("copied", 500)
    copied["metadata"]["name"] = "copy"
    house.hear(theirs, copied, made("going", 500, deletionTimestamp=moment(NOW)))
    assert house.looks() == []


def test_what_is_gone_or_was_made_again_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(Keep(for_s=0, at_most=0), monkeypatch)
    house.hear(made("gone", 500), made("again", 500))
    house.hear(made("gone", 500), kind="DELETED")
    house.hear(made("again", None))
    assert house.looks() == []


def test_a_cluster_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(Keep(for_s=0, at_most=0), monkeypatch, n_failures=1)
    house.hear(made("old", 500))
    assert house.looks(2) == ["old"]


def test_one_that_makes_no_sense_stays_and_the_others_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A definition of TrainingJobs does not say that a condition has a time."""
    house = House(Keep(for_s=100, at_most=10), monkeypatch)
    odd = made("odd", 500)
    del odd["status"]["conditions"][0]["lastTransitionTime"]
    house.hear(odd, made("old", 101))
    assert house.looks() == ["old"]
