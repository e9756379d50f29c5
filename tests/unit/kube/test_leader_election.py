"""Leader election by the local clock: never two leaders at once."""

import asyncio
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from rota.errors import UserError
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.leader_election import (
    LEASE_S,
    NAMESPACE_TERMINATING,
    RENEW_DEADLINE_S,
    LeaderLease,
    LeaseAction,
    LeaseLostError,
    ObservedLease,
    may_command,
    next_lease_action,
)
from rota.kube.resources import Object, ResourceKind


def lease(version: str, holder: str = "other", **more: Any) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 10, **more}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


def test_a_missing_lease_is_created() -> None:
    assert next_lease_action(None, None, now_s=0.0) == (LeaseAction.CREATE, None)


def test_a_lease_expires_when_no_change_was_observed() -> None:
    step, seen = next_lease_action(lease("1"), None, now_s=100.0)
    assert (step, seen) == (LeaseAction.WAIT, ObservedLease("1", 100.0))
    assert next_lease_action(lease("1"), seen, now_s=109.9) == (LeaseAction.WAIT, seen)
    assert next_lease_action(lease("1"), seen, now_s=110.0) == (LeaseAction.TAKE, seen)


def test_a_renewal_restarts_the_wait() -> None:
    _, seen = next_lease_action(lease("1"), None, now_s=100.0)
    assert next_lease_action(lease("2"), seen, now_s=109.0) == (
        LeaseAction.WAIT,
        ObservedLease("2", 109.0),
    )


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "nonsense"])
def test_the_clock_of_the_holder_does_not_matter(moment: str) -> None:
    found = lease("1", renewTime=moment)
    assert next_lease_action(found, ObservedLease("1", 100.0), now_s=105.0)[0] is LeaseAction.WAIT
    assert next_lease_action(found, ObservedLease("1", 100.0), now_s=110.0)[0] is LeaseAction.TAKE


def test_a_released_lease_is_free_at_once() -> None:
    assert next_lease_action(lease("1", holder=""), None, now_s=0.0)[0] is LeaseAction.TAKE


def test_a_holder_may_set_a_longer_duration() -> None:
    found = lease("1", leaseDurationSeconds=30)
    assert next_lease_action(found, ObservedLease("1", 0.0), now_s=29.0)[0] is LeaseAction.WAIT


def test_a_deleted_lease_may_still_be_held() -> None:
    """Its holder remains leader for a while, and creates it again."""
    _, seen = next_lease_action(lease("1"), None, now_s=100.0)
    assert next_lease_action(None, seen, now_s=100.0 + RENEW_DEADLINE_S) == (LeaseAction.WAIT, seen)
    assert next_lease_action(None, seen, now_s=109.9)[0] is LeaseAction.WAIT
    assert next_lease_action(None, seen, now_s=110.0)[0] is LeaseAction.CREATE
    assert next_lease_action(lease("7"), seen, now_s=109.0) == (
        LeaseAction.WAIT,
        ObservedLease("7", 109.0),
    )


def test_a_released_and_deleted_lease_is_created() -> None:
    _, seen = next_lease_action(lease("1", holder=""), None, now_s=100.0)
    assert next_lease_action(None, seen, now_s=101.0)[0] is LeaseAction.CREATE


def test_a_short_duration_does_not_take_the_lease_from_its_holder() -> None:
    found = lease("1", leaseDurationSeconds=1)
    assert (
        next_lease_action(found, ObservedLease("1", 0.0), now_s=RENEW_DEADLINE_S)[0]
        is LeaseAction.WAIT
    )
    assert next_lease_action(found, ObservedLease("1", 0.0), now_s=LEASE_S)[0] is LeaseAction.TAKE


def test_a_huge_duration_does_not_block_the_lease_forever() -> None:
    found = lease("1", leaseDurationSeconds=2**31 - 1)
    assert next_lease_action(found, ObservedLease("1", 0.0), now_s=61.0)[0] is LeaseAction.TAKE


def test_an_overflowing_transition_count_restarts() -> None:
    office = ClusterWithDeletedLease()
    office.kept = lease("1", holder="", leaseTransitions=2**31 - 1)
    ours = LeaderLease(cast(KubeClient, office), "rota", identity="we")
    asyncio.run(ours.acquire())
    assert office.kept["spec"]["leaseTransitions"] == ours.term == 1


def test_a_holder_stops_before_another_daemon_may_start() -> None:
    """Other daemons see a renewal that was sent at 0 at 0 or later."""
    last = max(s for s in range(100) if may_command(0.0, now_s=float(s)))
    assert last < RENEW_DEADLINE_S < LEASE_S
    assert (
        next_lease_action(lease("1"), ObservedLease("1", 0.0), now_s=RENEW_DEADLINE_S)[0]
        is LeaseAction.WAIT
    )


class RefusingCluster:
    """Refuses the next requests with these errors, one after the other: reads and writes, or
    only writes."""

    namespace = "lab"

    def __init__(self, *refusals: ApiError, may_look: bool = False) -> None:
        self._refusals = list(refusals)
        self._may_look = may_look

    async def get(self, kind: ResourceKind, name: str) -> Object:
        if self._refusals and not self._may_look:
            raise self._refusals.pop(0)
        return {**lease("1", holder=""), "kind": kind.kind, "name": name}

    async def replace(self, _: ResourceKind, body: Object) -> Object:
        if self._refusals:
            raise self._refusals.pop(0)
        return body


UNKNOWN = ApiError(401, "Unauthorized", "the cluster refused: Unauthorized")
AWAY = ApiError(0, "NotConnected", "the cluster does not answer")


@pytest.mark.parametrize("may_look", [False, True])
def test_a_problem_is_logged_once_and_refusals_back_off(
    monkeypatch: pytest.MonkeyPatch, may_look: bool
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    refusals = [*[UNKNOWN] * 5, AWAY, AWAY]
    house = RefusingCluster(*refusals, may_look=may_look)
    ours = LeaderLease(cast(KubeClient, house), "rota", identity="we")
    with capture_logs() as told:
        asyncio.run(ours.acquire())
    assert pauses == [2.0, 4.0, 8.0, 15.0, 15.0, 1.0, 1.0]
    assert [each["log_level"] for each in told] == ["warning", "warning", "info", "info"]
    assert "rejects our credentials" in told[0]["error"]
    assert ours.problem == ""


def test_a_missing_namespace_is_an_error() -> None:
    nowhere = ApiError(404, "NotFound", 'the cluster refused: namespaces "lab" not found')
    ours = LeaderLease(
        cast(KubeClient, RefusingCluster(nowhere, may_look=True)), "rota", identity="we"
    )
    with pytest.raises(UserError, match="no namespace lab"):
        asyncio.run(ours.acquire())


class ClusterWithDeletedLease:
    """A cluster whose lease was deleted; `refusal` is the answer to a create."""

    namespace = "lab"

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.refusal = refusal
        self.kept: Object | None = None

    async def get(self, _: ResourceKind, name: str) -> Object:
        if self.kept is None:
            raise ApiError(404, "NotFound", f"no {name}")
        return self.kept

    async def create(self, _: ResourceKind, body: Object) -> Object:
        if self.refusal is not None:
            raise self.refusal
        self.kept = {**body, "metadata": {"resourceVersion": "1"}}
        return self.kept

    async def replace(self, _: ResourceKind, body: Object) -> Object:
        if self.kept is None:
            # An API server takes it for a lease to be made, with a uid that cannot be.
            raise ApiError(409, "Conflict", "precondition failed")
        self.kept = body
        return body


GOING = ApiError(403, "Forbidden", f"no new content in namespace lab {NAMESPACE_TERMINATING}")
TAKEN = ApiError(409, "AlreadyExists", "somebody was faster")
NO_RIGHT = ApiError(403, "Forbidden", "you may not")


@pytest.mark.parametrize(
    ("refusal", "still_commands"),
    [(None, True), (GOING, True), (TAKEN, False), (NO_RIGHT, False)],
)
def test_a_deleted_lease_is_created_again(
    monkeypatch: pytest.MonkeyPatch, refusal: ApiError | None, still_commands: bool
) -> None:
    """Except in a namespace that is being deleted: there the holder stays leader, to stop the
    workers."""
    now_s, n_renewals = 0.0, 0
    office = ClusterWithDeletedLease()
    ours = LeaderLease(cast(KubeClient, office), "rota", identity="we", clock=lambda: now_s)
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
        asyncio.run(ours.renew_until_lost())
    assert still_commands == (n_renewals > 50)
    if refusal is None:
        assert ours.term == before + 1
