"""Shares the event loop between users: turns for their requests, by rate and by used CPU time.

All requests run on one event loop. If one user sends thousands of requests at once, the requests of
others must not wait for all of them. So in one pass of the loop each user starts one request, or
sends one piece of a stream. Users who are alone are not slowed down.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from time import monotonic, thread_time
from types import coroutine
from typing import Any, TypeVar

from rota.config.limits import DEFAULT_LIMITS
from rota.daemon.errors import LimitError
from rota.heavy_work import HeavyWork, set_payer

RATE_BURST_S = 1.0
"""Requests of this time may come at once."""
RATE_WAIT_S = 5.0
"""A request that would have to wait for longer is refused."""
CPU_BURST_S = 0.1
"""CPU time that a user may use at once before the share counts."""
ACTIVE_S = 1.0
"""How long after their last request a user counts as active."""
RECHECK_S = 0.005
MAX_ACCOUNTS = 1000
T = TypeVar("T")


@dataclass(slots=True)
class _Account:
    """When the requests, and the CPU time, of one user would have ended at the allowed rates."""

    paid_until_s: float = 0.0
    cpu_until_s: float = 0.0
    heavy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during heavy work of the user in a thread."""


class FairQueue:
    """`rate` is the number of requests in a second, `cpu_percent` the share of one CPU."""

    def __init__(
        self,
        rate: float = DEFAULT_LIMITS.max_requests_per_s,
        cpu_percent: float = DEFAULT_LIMITS.max_request_cpu,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._interval_s = 1.0 / rate
        self._cpu_factor = 100.0 / cpu_percent
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._last_seen_s: OrderedDict[str, float] = OrderedDict()
        """The users of the last requests, the latest last."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_passing = False
        """Whether a turn was given in this pass of the loop."""
        self._is_rechecking = False

    async def request(self, user: str, *, rate_key: str) -> None:
        """Wait for the turn of a request. Raises if the user sends too many. `rate_key` names what
        the rate counts: a user, or one of their jobs."""
        wait_s = self._pay(self._account(rate_key))
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await self.turn(user)

    async def turn(self, user: str) -> None:
        """Wait until the user may run a step on the event loop."""
        is_free = not self._is_passing and not self._is_throttled(user)
        if not self._is_passing:
            self._is_passing = True
            asyncio.get_running_loop().call_soon(self._next_pass)
        if is_free:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        await turn

    async def run(self, user: str, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and charge its CPU time to the user, heavy work in threads included."""
        account = self._account(user)

        def charge(seconds: float) -> None:
            self._charge(account, seconds)

        set_payer(HeavyWork(account.heavy, charge))
        return await _metered(work, charge)

    def charge(self, user: str, cpu_s: float) -> None:
        """Charge CPU time to the user."""
        self._charge(self._account(user), cpu_s)

    def _charge(self, account: _Account, cpu_s: float) -> None:
        account.cpu_until_s = max(account.cpu_until_s, self._clock()) + cpu_s * self._cpu_factor

    def _account(self, user: str) -> _Account:
        known = self._accounts.get(user)
        if known is None:
            known = self._accounts[user] = _Account()
            if len(self._accounts) > MAX_ACCOUNTS:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(user)
        return known

    def _pay(self, account: _Account) -> float:
        """Pay for one request; returns how long it has to wait."""
        now = self._clock()
        paid_until_s = max(account.paid_until_s, now) + self._interval_s
        wait_s = paid_until_s - now - RATE_BURST_S
        if wait_s > RATE_WAIT_S:
            raise LimitError(
                f"you send more than {1 / self._interval_s:g} requests in a second",
                "send fewer requests at once, or many jobs in one request",
                setting="max_requests_per_s",
            )
        account.paid_until_s = paid_until_s
        return wait_s

    def _is_throttled(self, user: str) -> bool:
        """Whether the user has used up their share of the CPU while others are active."""
        now = self._clock()
        self._last_seen_s[user] = now
        self._last_seen_s.move_to_end(user)
        if len(self._last_seen_s) > MAX_ACCOUNTS:
            self._last_seen_s.popitem(last=False)
        if self._account(user).cpu_until_s - now < CPU_BURST_S * self._cpu_factor:
            return False
        others = (at_s for other, at_s in reversed(self._last_seen_s.items()) if other != user)
        return now - next(others, -ACTIVE_S) < ACTIVE_S

    def _next_pass(self) -> None:
        """Give one turn to each waiting user, in the order of their first waiting request."""
        n_turns = 0
        for user in list(self._waiting):
            if not self._is_throttled(user):
                n_turns += self._give_turn(user)
        loop = asyncio.get_running_loop()
        self._is_passing = n_turns > 0
        if n_turns:
            loop.call_soon(self._next_pass)
        elif self._waiting and not self._is_rechecking:
            # Throttled users: the users who are not find the loop free meanwhile.
            self._is_rechecking = True
            loop.call_later(RECHECK_S, self._recheck)

    def _recheck(self) -> None:
        self._is_rechecking = False
        if not self._is_passing:
            self._next_pass()

    def _give_turn(self, user: str) -> bool:
        turns = self._waiting[user]
        while turns:
            turn = turns.popleft()
            if not turns:
                del self._waiting[user]
            if not turn.done():
                turn.set_result(None)
                return True
        return False


@coroutine
def _metered(
    work: Coroutine[Any, Any, T], charge: Callable[[float], None]
) -> Generator[Any, Any, T]:
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        begun_s = thread_time()
        try:
            awaited = step(value)
        except StopIteration as end:
            return end.value
        finally:
            charge(thread_time() - begun_s)
        try:
            value, step = (yield awaited), work.send
        except BaseException as error:  # noqa: BLE001 - the coroutine raises it again
            value, step = error, work.throw
