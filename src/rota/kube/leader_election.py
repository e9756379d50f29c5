"""Leader election with a Lease: the holder sends commands, the other daemons stand by.

Only the local clock decides. A lease has expired if this process saw no change of it for its
whole duration, whatever time its holder wrote into it. A holder stops sending commands well
before others may find its lease expired; its clock also counts the time in which the machine is
suspended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

import structlog

from rota.errors import UnavailableError, UserError
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.resources import LEASES, Object, part

log = structlog.get_logger()

RENEW_S = 2.0
LEASE_S = 10.0
MAX_LEASE_S = 60.0
"""Longest duration that is respected. A foreign value in a lease must not block it forever."""
MAX_TERM = 2**31 - 1
"""The largest value of leaseTransitions that a cluster stores."""
RENEW_DEADLINE_S = 7.0
"""This daemon may send commands for so long after it sent its last successful renewal."""
RETRY_S = 0.3
REFUSED_RETRY_S = 15.0
"""Delay after a rejected request (401, 403). An administrator has to fix the cause first."""
UNAUTHORIZED, FORBIDDEN = 401, 403
NAMESPACE_TERMINATING = "because it is being terminated"
"""Part of the API server's message if an object is created in a namespace that is being deleted."""
CREDENTIALS_HINT = "put new credentials into the kubeconfig and restart the daemon"
RESPONSE_TIMEOUT_S = RENEW_DEADLINE_S - RENEW_S
"""Longer than needed: a slow response is better than a second request."""


class LeaseLostError(UnavailableError):
    """Another daemon may be the leader now."""

    code = "lease_lost"


class LeaseAction(Enum):
    CREATE = auto()
    TAKE = auto()
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A version of a lease, and when this process first saw it."""

    version: str
    since_s: float
    is_free: bool = False

    def may_be_held(self, now_s: float, *, length_s: float = LEASE_S) -> bool:
        return not self.is_free and now_s - self.since_s < length_s


def next_lease_action(
    lease: Object | None, seen: ObservedLease | None, *, now_s: float
) -> tuple[LeaseAction, ObservedLease | None]:
    """What a daemon that does not hold the lease may do. A holder whose lease was deleted
    creates it again and remains leader until its deadline, so others wait here too."""
    if lease is None:
        return LeaseAction.WAIT if seen is not None and seen.may_be_held(
            now_s
        ) else LeaseAction.CREATE, seen
    spec, version = part(lease, "spec"), lease["metadata"]["resourceVersion"]
    if seen is None or seen.version != version:
        seen = ObservedLease(version, now_s, is_free=not spec.get("holderIdentity"))
    # A holder may send commands for as long as our own lease lasts, whatever its lease says.
    length_s = min(max(float(spec.get("leaseDurationSeconds") or 0), LEASE_S), MAX_LEASE_S)
    return LeaseAction.WAIT if seen.may_be_held(
        now_s, length_s=length_s
    ) else LeaseAction.TAKE, seen


def may_command(renewed_s: float, *, now_s: float) -> bool:
    """Whether a holder that sent its last renewal at `renewed_s` may still send commands."""
    return now_s - renewed_s < RENEW_DEADLINE_S


def _boot_time_s() -> float:
    """A monotonic clock that also counts suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaderLease:
    """Acquires, renews and releases the lease. `require` is the gate of a KubeClient: it raises
    if this daemon is not the leader. `require` and `term` may be called from any thread."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        *,
        identity: str,
        clock: Callable[[], float] = _boot_time_s,
    ) -> None:
        self._client = client
        self._name = name
        self._identity = identity
        self._clock = clock
        self._held: Object | None = None
        self._renewed_s = -RENEW_DEADLINE_S
        self.holder = ""
        """The identity of the leader, as last seen."""
        self.problem = ""
        """Why the lease cannot be read or written; empty if it can."""

    @property
    def term(self) -> int:
        """The number of this leadership. Each new holder has a larger one."""
        held = self._held
        return int(held["spec"]["leaseTransitions"]) if held else 0

    def require(self) -> None:
        """Raise `LeaseLostError` if this daemon may not send commands."""
        if self._held is None or not may_command(self._renewed_s, now_s=self._clock()):
            raise LeaseLostError(
                f"lost the lease {self._name}: another daemon may be the leader",
                "this daemon stops all changes and restarts as a standby",
            )

    async def acquire(self) -> None:
        """Return when this daemon holds the lease."""
        seen: ObservedLease | None = None
        pause_s = RENEW_S / 2
        while True:
            try:
                lease = await self._read()
                action, seen = next_lease_action(lease, seen, now_s=self._clock())
                self._set_holder(str(part(lease or {}, "spec").get("holderIdentity") or ""))
                is_acquired = action is not LeaseAction.WAIT and await self._take(lease)
                self._set_problem("")
                if is_acquired:
                    log.info("lease acquired", lease=self._name, term=self.term)
                    return
                pause_s = RENEW_S / 2
            except (ApiError, TimeoutError) as error:
                self._set_problem(_describe(error))
                pause_s = min(REFUSED_RETRY_S, 2 * pause_s) if is_refused(error) else RENEW_S / 2
            await asyncio.sleep(pause_s)

    async def renew_until_lost(self) -> None:
        """Renew the lease until the deadline has passed. Always ends with `LeaseLostError`."""
        pause_s = RENEW_S
        while True:
            await asyncio.sleep(pause_s)
            # Never renew after the deadline: another daemon may have taken over.
            self.require()
            try:
                await self._renew()
                self._set_problem("")
                pause_s = RENEW_S
            except (ApiError, TimeoutError) as error:
                self._set_problem(_describe(error))
                pause_s = RETRY_S

    async def release(self) -> None:
        """Clear the holder, so that another daemon need not wait until the lease expires."""
        held, self._held = self._held, None
        if held is None or not may_command(self._renewed_s, now_s=self._clock()):
            return
        try:
            await self._replace({**held, "spec": {**held["spec"], "holderIdentity": ""}})
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released", error=str(error))

    def _set_holder(self, holder: str) -> None:
        """Log each other leader once: the log shows what this daemon waits for."""
        if holder and holder != self.holder:
            log.info("another daemon is the leader; standing by", holder=holder)
        self.holder = holder

    def _set_problem(self, problem: str) -> None:
        """Log a problem when it appears, changes or ends."""
        if problem and problem != self.problem:
            log.warning("lease request failed", lease=self._name, error=problem)
        elif self.problem and not problem:
            log.info("lease requests work again", lease=self._name)
        self.problem = problem

    async def _read(self) -> Object | None:
        try:
            return await asyncio.wait_for(self._client.get(LEASES, self._name), RESPONSE_TIMEOUT_S)
        except ApiError as error:
            if error.reason == "NotFound":
                return None
            raise

    async def _take(self, lease: Object | None) -> bool:
        """Write our identity into the lease. False: another daemon was faster."""
        sent_s = self._clock()
        stored = int(part(lease or {}, "spec").get("leaseTransitions") or 0)
        term = max(self.term, stored if stored < MAX_TERM else 0) + 1
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_S),
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": term,
        }
        try:
            if lease is None:
                body = {"metadata": {"name": self._name}, "spec": spec}
                made = await asyncio.wait_for(self._client.create(LEASES, body), RESPONSE_TIMEOUT_S)
            else:
                made = await self._replace({**lease, "spec": spec})
        except ApiError as error:
            if error.reason in ("Conflict", "AlreadyExists"):
                return False
            if error.reason == "NotFound":
                namespace = self._client.namespace
                what = f"the cluster has no namespace {namespace}"
                raise UserError(what, f"create it: kubectl create namespace {namespace}") from None
            raise
        self._held, self._renewed_s = made, sent_s
        self.holder = self._identity
        return True

    async def _renew(self) -> None:
        assert self._held is not None
        sent_s = self._clock()
        spec = {**self._held["spec"], "renewTime": _now()}
        try:
            self._held = await self._replace({**self._held, "spec": spec})
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                raise
            lease = await self._read()
            if lease is None:
                await self._recreate(sent_s)
            else:
                self._held = self._if_ours(lease)
        else:
            self._renewed_s = sent_s

    async def _recreate(self, sent_s: float) -> None:
        """The lease was deleted. In a namespace that is being deleted no daemon can create it;
        this daemon then stays leader, to stop what still runs there."""
        held = self._held
        try:
            if not await self._take(None):
                self._held = None
        except ApiError as error:
            if NAMESPACE_TERMINATING not in error.message:
                raise
            self._held, self._renewed_s = held, sent_s

    def _if_ours(self, lease: Object) -> Object | None:
        """The lease, if it is still ours: the response to a renewal may have been lost."""
        spec = part(lease, "spec")
        holder = spec.get("holderIdentity"), spec.get("leaseTransitions")
        return lease if holder == (self._identity, self.term) else None

    async def _replace(self, body: Object) -> Any:
        return await asyncio.wait_for(self._client.replace(LEASES, body), RESPONSE_TIMEOUT_S)


def is_refused(error: ApiError | TimeoutError) -> bool:
    """Whether the cluster rejects our credentials or permissions. Time does not solve this."""
    return isinstance(error, ApiError) and error.status in (UNAUTHORIZED, FORBIDDEN)


def _describe(error: ApiError | TimeoutError) -> str:
    if isinstance(error, ApiError) and error.status == UNAUTHORIZED:
        return f"the cluster rejects our credentials ({error}); {CREDENTIALS_HINT}"
    return str(error) or f"the cluster did not respond within {RESPONSE_TIMEOUT_S:g} s"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
