"""Which TrainingJobs of finished jobs are kept."""

import asyncio
from typing import Any, Literal

import pytest

from rota.errors import UnavailableError
from rota.kube.resources import WatchEvent
from rota.operator import ttl_cleanup
from rota.operator.ttl_cleanup import TtlCleaner, TtlLimits
from rota.store.kubernetes.crd_codec import ACCEPTED, SEAL, rfc3339, seal

KEY = b"key"
NOW = 1_000_000.0


def made(name: str, ended_s: float | None, **meta: Any) -> dict[str, Any]:
    """An object of ours, whose job ended so long ago."""
    notes = {ACCEPTED: "job", SEAL: seal(KEY, name=name, text="job")}
    over = {"type": "Failed", "status": "True", "lastTransitionTime": rfc3339(NOW - (ended_s or 0))}
    runs = {"type": "Running", "status": "True", "lastTransitionTime": rfc3339(0.0)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": notes, **meta},
        "status": {"conditions": [runs if ended_s is None else over]},
    }


class Cleanup:
    """Runs a number of passes and records the deleted objects; the first `n_failures` deletes
    fail."""

    def __init__(
        self, keep: TtlLimits, monkeypatch: pytest.MonkeyPatch, *, n_failures: int = 0
    ) -> None:
        self.removed: list[str] = []
        self._n_failures = n_failures
        self._n_passes = 0
        self.ended = TtlCleaner(self._delete, keep, key=KEY, clock=lambda: NOW)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    def on_change(
        self, *found: dict[str, Any], kind: Literal["ADDED", "DELETED"] = "ADDED"
    ) -> None:
        for each in found:
            self.ended.on_change(WatchEvent(kind, each))

    def passes(self, n_times: int = 1) -> list[str]:
        self._n_passes = n_times
        with pytest.raises(TimeoutError):
            asyncio.run(self.ended.run())
        return self.removed

    async def _sleep(self, seconds: float) -> None:
        assert seconds == ttl_cleanup.CLEAN_UP_INTERVAL_S
        if self._n_passes == 0:
            raise TimeoutError
        self._n_passes -= 1

    async def _delete(self, name: str, uid: str) -> None:
        assert uid == f"uid-{name}"
        if self._n_failures:
            self._n_failures -= 1
            raise UnavailableError("not now")
        self.removed.append(name)
        self.on_change(made(name, 0), kind="DELETED")


def test_old_objects_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cleanup = Cleanup(TtlLimits(for_s=100, at_most=10), monkeypatch)
    cleanup.on_change(
        made("old", 101), made("young", 99), made("running", None), made("older", 500)
    )
    assert cleanup.passes() == ["older", "old"]


def test_the_oldest_of_too_many_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cleanup = Cleanup(TtlLimits(for_s=1000, at_most=2), monkeypatch)
    cleanup.on_change(*(made(f"job-{age}", age) for age in (10, 40, 30, 20)), made("running", None))
    assert cleanup.passes() == ["job-40", "job-30"]


def test_objects_of_users_and_deleted_objects_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cleanup = Cleanup(TtlLimits(for_s=0, at_most=0), monkeypatch)
    theirs = made("theirs", 500, annotations={})
    copied = made("copied", 500)
    copied["metadata"]["name"] = "copy"
    cleanup.on_change(theirs, copied, made("going", 500, deletionTimestamp=rfc3339(NOW)))
    assert cleanup.passes() == []


def test_a_replaced_object_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cleanup = Cleanup(TtlLimits(for_s=0, at_most=0), monkeypatch)
    cleanup.on_change(made("gone", 500), made("again", 500))
    cleanup.on_change(made("gone", 500), kind="DELETED")
    cleanup.on_change(made("again", None))
    assert cleanup.passes() == []


def test_a_delete_is_retried_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    cleanup = Cleanup(TtlLimits(for_s=0, at_most=0), monkeypatch, n_failures=1)
    cleanup.on_change(made("old", 500))
    assert cleanup.passes(2) == ["old"]


def test_a_malformed_object_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The CRD does not require a time in a condition."""
    cleanup = Cleanup(TtlLimits(for_s=100, at_most=10), monkeypatch)
    odd = made("odd", 500)
    del odd["status"]["conditions"][0]["lastTransitionTime"]
    cleanup.on_change(odd, made("old", 101))
    assert cleanup.passes() == ["old"]


def test_a_user_with_many_objects_does_not_displace_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cleanup = Cleanup(TtlLimits(for_s=1e9, at_most=3), monkeypatch)
    oldest = made("mine", 900, labels={"rota.dev/user": "ann"})
    flood = [made(f"e{n}", 100 - n, labels={"rota.dev/user": "eve"}) for n in range(5)]
    cleanup.on_change(oldest, *flood)
    assert cleanup.passes() == ["e0", "e1", "e2"]
