"""One daemon commands, the others wait: whoever holds the Lease.

What a lease says is judged by our own clock alone: it is stale when it has not changed before our
eyes for its whole length, whatever time its holder wrote into it. We stop commanding well before
others may find ours stale, by a clock that goes on while the machine or the process sleeps.
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

from rota.engines.kubernetes.api import LEASES, ApiError, Cluster, Object
from rota.engines.kubernetes.objects import part
from rota.errors import UnavailableError, UserError

log = structlog.get_logger()

RENEW_S = 2.0
LEASE_S = 10.0
LONGEST_S = 60.0
"""No daemon asks for more; what somebody else wrote into a lease keeps nobody from it for ever."""
LAST_TERM = 2**31 - 1
"""More transitions than this a cluster does not count."""
COMMAND_S = 7.0
"""So long after a renewal was sent we still command."""
RETRY_S = 0.3
REFUSED_S = 15.0
"""Who was refused at the door asks again no sooner: others have to mend it."""
UNAUTHORIZED, FORBIDDEN = 401, 403
TERMINATED = "because it is being terminated"
"""What an API server says of a namespace that goes, to whoever wants to make something there."""
NEW_ONES = "put new ones into the kubeconfig, and start it again"
ANSWER_S = COMMAND_S - RENEW_S
"""A slow answer is better than none: what was sent twice would only be slower."""


class LeaseLostError(UnavailableError):
    """Another daemon may command by now."""

    code = "lease_lost"


class Step(Enum):
    MAKE = auto()
    TAKE = auto()
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it stood when we first saw it so."""

    mark: str
    since_s: float
    is_free: bool = False

    def may_be_held(self, now_s: float, *, length_s: float = LEASE_S) -> bool:
        return not self.is_free and now_s - self.since_s < length_s


def look(lease: Object | None, seen: Seen | None, *, now_s: float) -> tuple[Step, Seen | None]:
    """What one who does not hold the lease may do about it. Whoever held one that is gone makes it
    again, and commands until then."""
    if lease is None:
        return Step.WAIT if seen is not None and seen.may_be_held(now_s) else Step.MAKE, seen
    spec, mark = part(lease, "spec"), lease["metadata"]["resourceVersion"]
    if seen is None or seen.mark != mark:
        seen = Seen(mark, now_s, is_free=not spec.get("holderIdentity"))
    # No holder stops sooner than it would with a lease of ours, whatever is written there.
    length_s = min(max(float(spec.get("leaseDurationSeconds") or 0), LEASE_S), LONGEST_S)
    return Step.WAIT if seen.may_be_held(now_s, length_s=length_s) else Step.TAKE, seen


def may_command(renewed_s: float, *, now_s: float) -> bool:
    return now_s - renewed_s < COMMAND_S


def _boot_time_s() -> float:
    """Goes on while the machine sleeps, and never back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """`require` is for the gate of a cluster: it raises when we may no longer command. It and
    `term` may be asked from any thread."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        identity: str,
        clock: Callable[[], float] = _boot_time_s,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._identity = identity
        self._clock = clock
        self._held: Object | None = None
        self._renewed_s = -COMMAND_S
        self.holder = ""
        """Who commands, as far as we saw."""
        self.trouble = ""
        """Why that cannot be asked, if it cannot."""

    @property
    def term(self) -> int:
        """Grows by one with each holder."""
        held = self._held
        return int(held["spec"]["leaseTransitions"]) if held else 0

    def require(self) -> None:
        if self._held is None or not may_command(self._renewed_s, now_s=self._clock()):
            raise LeaseLostError(
                f"lease {self._name} is no longer ours: another daemon may command by now",
                "this one changes nothing any more; it begins anew as a standby",
            )

    async def acquire(self) -> None:
        """Returns when the lease is ours."""
        seen: Seen | None = None
        pause_s = RENEW_S / 2
        while True:
            try:
                lease = await self._read()
                step, seen = look(lease, seen, now_s=self._clock())
                self._see_holder(str(part(lease or {}, "spec").get("holderIdentity") or ""))
                is_ours = step is not Step.WAIT and await self._take(lease)
                self._complain("")
                if is_ours:
                    log.info("lease is ours", lease=self._name, term=self.term)
                    return
                pause_s = RENEW_S / 2
            except (ApiError, TimeoutError) as error:
                self._complain(_words(error))
                pause_s = min(REFUSED_S, 2 * pause_s) if is_refused(error) else RENEW_S / 2
            await asyncio.sleep(pause_s)

    async def hold(self) -> None:
        """Renews it until that is too late. Always ends with `LeaseLostError`."""
        pause_s = RENEW_S
        while True:
            await asyncio.sleep(pause_s)
            # Not to be asked for again once we stopped: others may have begun meanwhile.
            self.require()
            try:
                await self._renew()
                self._complain("")
                pause_s = RENEW_S
            except (ApiError, TimeoutError) as error:
                self._complain(_words(error))
                pause_s = RETRY_S

    async def give_up(self) -> None:
        """So that nobody has to wait until it is stale."""
        held, self._held = self._held, None
        if held is None or not may_command(self._renewed_s, now_s=self._clock()):
            return
        try:
            await self._replace({**held, "spec": {**held["spec"], "holderIdentity": ""}})
        except (ApiError, TimeoutError) as error:
            log.warning("the lease was not given up", error=str(error))

    def _see_holder(self, holder: str) -> None:
        """Once of each: whoever looks into the log wonders what is waited for."""
        if holder and holder != self.holder:
            log.info("another daemon commands, and this one stands by", holder=holder)
        self.holder = holder

    def _complain(self, trouble: str) -> None:
        """Once, and again when it is another or over."""
        if trouble and trouble != self.trouble:
            log.warning("the lease cannot be asked for", lease=self._name, error=trouble)
        elif self.trouble and not trouble:
            log.info("the lease can be asked for again", lease=self._name)
        self.trouble = trouble

    async def _read(self) -> Object | None:
        try:
            return await asyncio.wait_for(self._cluster.get(LEASES, self._name), ANSWER_S)
        except ApiError as error:
            if error.reason == "NotFound":
                return None
            raise

    async def _take(self, lease: Object | None) -> bool:
        """Whether it is ours now: somebody else may have been faster."""
        sent_s = self._clock()
        told = int(part(lease or {}, "spec").get("leaseTransitions") or 0)
        term = max(self.term, told if told < LAST_TERM else 0) + 1
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
                made = await asyncio.wait_for(self._cluster.create(LEASES, body), ANSWER_S)
            else:
                made = await self._replace({**lease, "spec": spec})
        except ApiError as error:
            if error.reason in ("Conflict", "AlreadyExists"):
                return False
            if error.reason == "NotFound":
                where = self._cluster.namespace
                what = f"the cluster has no namespace {where}"
                raise UserError(what, f"kubectl create namespace {where}") from None
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
                await self._make_again(sent_s)
            else:
                self._held = self._ours(lease)
        else:
            self._renewed_s = sent_s

    async def _make_again(self, sent_s: float) -> None:
        """Somebody deleted it. In a namespace that goes nobody else can make it, either, and what
        is left there has to be ended."""
        held = self._held
        try:
            if not await self._take(None):
                self._held = None
        except ApiError as error:
            if TERMINATED not in error.message:
                raise
            self._held, self._renewed_s = held, sent_s

    def _ours(self, lease: Object) -> Object | None:
        """Ours all the same, if a renewal arrived whose answer did not."""
        spec = part(lease, "spec")
        said = spec.get("holderIdentity"), spec.get("leaseTransitions")
        return lease if said == (self._identity, self.term) else None

    async def _replace(self, body: Object) -> Any:
        return await asyncio.wait_for(self._cluster.replace(LEASES, body), ANSWER_S)


def is_refused(error: ApiError | TimeoutError) -> bool:
    """Whether the cluster does not know us, or does not let us: no question of time."""
    return isinstance(error, ApiError) and error.status in (UNAUTHORIZED, FORBIDDEN)


def _words(error: ApiError | TimeoutError) -> str:
    if isinstance(error, ApiError) and error.status == UNAUTHORIZED:
        return f"our credentials have ended or were never good ({error}); {NEW_ONES}"
    return str(error) or f"the cluster did not answer within {ANSWER_S:g} s"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
