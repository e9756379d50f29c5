"""Who commands: by our own clock, and never two at once."""

import asyncio
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from rota.engines.kubernetes.api import ApiError, Cluster, Kind, Object
from rota.engines.kubernetes.lease import (
    COMMAND_S,
    LEASE_S,
    TERMINATED,
    Lease,
    LeaseLostError,
    Seen,
    Step,
    look,
    may_command,
)
from rota.errors import UserError


def lease(version: str, holder: str = "other", **more: Any) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 10, **more}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


def test_what_nobody_made_is_made() -> None:
    assert look(None, None, now_s=0.0) == (Step.MAKE, None)


def test_a_lease_is_stale_when_it_did_not_change_before_our_eyes() -> None:
    step, seen = look(lease("1"), None, now_s=100.0)
    assert (step, seen) == (Step.WAIT, Seen("1", 100.0))
    assert look(lease("1"), seen, now_s=109.9) == (Step.WAIT, seen)
    assert look(lease("1"), seen, now_s=110.0) == (Step.TAKE, seen)


def test_a_renewal_begins_the_wait_anew() -> None:
    _, seen = look(lease("1"), None, now_s=100.0)
    assert look(lease("2"), seen, now_s=109.0) == (Step.WAIT, Seen("2", 109.0))


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "nonsense"])
def test_the_clock_of_its_holder_does_not_matter(moment: str) -> None:
    found = lease("1", renewTime=moment)
    assert look(found, Seen("1", 100.0), now_s=105.0)[0] is Step.WAIT
    assert look(found, Seen("1", 100.0), now_s=110.0)[0] is Step.TAKE


def test_what_was_given_up_is_free_at_once() -> None:
    assert look(lease("1", holder=""), None, now_s=0.0)[0] is Step.TAKE


def test_a_holder_may_ask_for_more_time() -> None:
    found = lease("1", leaseDurationSeconds=30)
    assert look(found, Seen("1", 0.0), now_s=29.0)[0] is Step.WAIT


def test_a_lease_that_is_deleted_may_still_be_held() -> None:
    """Whoever held it commands for a while, and makes it again."""
    _, seen = look(lease("1"), None, now_s=100.0)
    assert look(None, seen, now_s=100.0 + COMMAND_S) == (Step.WAIT, seen)
    assert look(None, seen, now_s=109.9)[0] is Step.WAIT
    assert look(None, seen, now_s=110.0)[0] is Step.MAKE
    assert look(lease("7"), seen, now_s=109.0) == (Step.WAIT, Seen("7", 109.0))


def test_a_lease_that_was_given_up_and_deleted_is_made() -> None:
    _, seen = look(lease("1", holder=""), None, now_s=100.0)
    assert look(None, seen, now_s=101.0)[0] is Step.MAKE


def test_what_is_written_into_a_lease_takes_it_from_nobody() -> None:
    found = lease("1", leaseDurationSeconds=1)
    assert look(found, Seen("1", 0.0), now_s=COMMAND_S)[0] is Step.WAIT
    assert look(found, Seen("1", 0.0), now_s=LEASE_S)[0] is Step.TAKE


def test_what_is_written_into_a_lease_keeps_nobody_from_it_for_ever() -> None:
    found = lease("1", leaseDurationSeconds=2**31 - 1)
    assert look(found, Seen("1", 0.0), now_s=61.0)[0] is Step.TAKE


def test_transitions_that_cannot_be_counted_on_begin_anew() -> None:
    office = Office()
    office.kept = lease("1", holder="", leaseTransitions=2**31 - 1)
    ours = Lease(cast(Cluster, office), "rota", identity="we")
    asyncio.run(ours.acquire())
    assert office.kept["spec"]["leaseTransitions"] == ours.term == 1


def test_we_stop_before_anybody_may_begin() -> None:
    """A renewal that was sent at 0 is seen by others at 0 or later."""
    last = max(s for s in range(100) if may_command(0.0, now_s=float(s)))
    assert last < COMMAND_S < LEASE_S
    assert look(lease("1"), Seen("1", 0.0), now_s=COMMAND_S)[0] is Step.WAIT


class Gatehouse:
    """A cluster that refuses us for a while, each time with the next of these errors: to look, or
    only to write."""

    namespace = "lab"

    def __init__(self, *refusals: ApiError, may_look: bool = False) -> None:
        self._refusals = list(refusals)
        self._may_look = may_look

    async def get(self, kind: Kind, name: str) -> Object:
        if self._refusals and not self._may_look:
            raise self._refusals.pop(0)
        return {**lease("1", holder=""), "kind": kind.kind, "name": name}

    async def replace(self, _: Kind, body: Object) -> Object:
        if self._refusals:
            raise self._refusals.pop(0)
        return body


UNKNOWN = ApiError(401, "Unauthorized", "the cluster refused: Unauthorized")
AWAY = ApiError(0, "NotConnected", "the cluster does not answer")


@pytest.mark.parametrize("may_look", [False, True])
def test_trouble_is_told_once_and_who_is_refused_asks_less_and_less(
    monkeypatch: pytest.MonkeyPatch, may_look: bool
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    refusals = [*[UNKNOWN] * 5, AWAY, AWAY]
    house = Gatehouse(*refusals, may_look=may_look)
    ours = Lease(cast(Cluster, house), "rota", identity="we")
    with capture_logs() as told:
        asyncio.run(ours.acquire())
    assert pauses == [2.0, 4.0, 8.0, 15.0, 15.0, 1.0, 1.0]
    assert [each["log_level"] for each in told] == ["warning", "warning", "info", "info"]
    assert "credentials have ended" in told[0]["error"]
    assert ours.trouble == ""


def test_a_namespace_that_is_not_there_is_not_waited_for() -> None:
    nowhere = ApiError(404, "NotFound", 'the cluster refused: namespaces "lab" not found')
    ours = Lease(cast(Cluster, Gatehouse(nowhere, may_look=True)), "rota", identity="we")
    with pytest.raises(UserError, match="no namespace lab"):
        asyncio.run(ours.acquire())


class Office:
    """A cluster whose lease somebody deletes; `refusal` is what it says to who makes another."""

    namespace = "lab"

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.refusal = refusal
        self.kept: Object | None = None

    async def get(self, _: Kind, name: str) -> Object:
        if self.kept is None:
            raise ApiError(404, "NotFound", f"no {name}")
        return self.kept

    async def create(self, _: Kind, body: Object) -> Object:
        if self.refusal is not None:
            raise self.refusal
        self.kept = {**body, "metadata": {"resourceVersion": "1"}}
        return self.kept

    async def replace(self, _: Kind, body: Object) -> Object:
        if self.kept is None:
            # An API server takes it for a lease to be made, with a uid that cannot be.
            raise ApiError(409, "Conflict", "precondition failed")
        self.kept = body
        return body


GOING = ApiError(403, "Forbidden", f"no new content in namespace lab {TERMINATED}")
TAKEN = ApiError(409, "AlreadyExists", "somebody was faster")
NO_RIGHT = ApiError(403, "Forbidden", "you may not")


@pytest.mark.parametrize(
    ("refusal", "still_commands"),
    [(None, True), (GOING, True), (TAKEN, False), (NO_RIGHT, False)],
)
def test_a_lease_that_somebody_deletes(
    monkeypatch: pytest.MonkeyPatch, refusal: ApiError | None, still_commands: bool
) -> None:
    """It is made again. In a namespace that goes nobody can; what is there has to be ended."""
    now_s, n_renewals = 0.0, 0
    office = Office()
    ours = Lease(cast(Cluster, office), "rota", identity="we", clock=lambda: now_s)
    asyncio.run(ours.acquire())
    before = ours.term

    async def sleep(seconds: float) -> None:
        nonlocal now_s, n_renewals
        now_s += seconds
        n_renewals += 1
        if n_renewals > 50:
            raise asyncio.CancelledError

    office.kept, office.refusal = None, refusal
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError if still_commands else LeaseLostError):
        asyncio.run(ours.hold())
    assert still_commands == (n_renewals > 50)
    if refusal is None:
        assert ours.term == before + 1
