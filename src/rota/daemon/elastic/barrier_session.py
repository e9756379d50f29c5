"""The rendezvous session of one attempt: its barrier, the store of its newest round, its waiters.

Adds to `barrier` what depends on time: held requests, and how long a change of members took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from rota.daemon.elastic.barrier import RendezvousBarrier, RendezvousRound
from rota.daemon.elastic.kv_store import KeyValueStore
from rota.errors import UserError
from rota_trainer.torchrun.messages import LONGEST_WAIT_S

MOST_WAITING = 4096
"""How many requests of one job are held at a time."""

T = TypeVar("T")


class TooManyWaitersError(UserError):
    code = "too_many"


@dataclass(frozen=True, slots=True)
class RestartTiming:
    """The duration of a change of members."""

    generation: int
    workers: int
    gather_s: float
    """From the first call to the barrier until all members had arrived; includes the stop of
    processes."""
    start_s: float
    """From then until the processes of all agents ran; excludes the start-up of the script."""


@dataclass(slots=True)
class BarrierSession:
    barrier: RendezvousBarrier
    restart: RestartTiming | None = None
    """The newest complete change."""
    called_s: float | None = None
    gather_s: float = 0.0
    starts: dict[int, float] = field(default_factory=dict[int, float])
    is_over: bool = False
    _at: RendezvousRound | None = None
    _store: KeyValueStore = field(default_factory=KeyValueStore)
    _n_waiting: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    # -- timing ---------------------------------------------------------------------------------

    def record_call(self, now: float) -> None:
        if self.called_s is None:
            self.called_s = now

    def record_meeting(self, now: float) -> None:
        self.gather_s = 0.0 if self.called_s is None else now - self.called_s
        self.called_s = None
        self.starts.clear()

    def pause_s(self) -> float | None:
        """The expected interruption of training by this change: the measured time to gather, plus
        the start time of the last change. None if unknown."""
        if not self.gather_s:
            return None
        return self.gather_s + (self.restart.start_s if self.restart is not None else 0.0)

    def record_start(self, worker: int, start_s: float) -> bool:
        """Record the start time of a worker; returns whether all members have started now."""
        met = self.barrier.result
        if met is None or worker not in met.members or len(self.starts) == len(met.members):
            return False
        self.starts[worker] = start_s
        if len(self.starts) < len(met.members):
            return False
        longest_s = max(self.starts.values())
        self.restart = RestartTiming(
            met.round.generation, len(met.members), self.gather_s, longest_s
        )
        return True

    # -- the store ------------------------------------------------------------------------------

    def store(self, at: RendezvousRound) -> KeyValueStore | None:
        """The store of a round; None if the round is over. The first request of a newer round
        creates its store."""
        met, roster = self.barrier.result, self.barrier.roster
        is_behind = (self._at is not None and at < self._at) or (met is not None and at < met.round)
        if is_behind or at.generation > roster.generation:
            return None
        if at != self._at:
            self._at, self._store = at, KeyValueStore()
        return self._store

    # -- waiting --------------------------------------------------------------------------------

    def announce(self) -> None:
        """Wake all held requests: something has changed."""
        self._news.set()
        self._news = asyncio.Event()

    async def hold(self, look: Callable[[], T | None], wait_s: float) -> T | None:
        """Call `look` after each change until it returns a value; None after `wait_s`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(wait_s, LONGEST_WAIT_S)
        found = look()
        while found is None and not self.is_over and (left_s := until - loop.time()) > 0:
            await self._wait_for_change(left_s)
            found = look()
        return found

    async def _wait_for_change(self, wait_s: float) -> None:
        if self._n_waiting >= MOST_WAITING:
            raise TooManyWaitersError(
                f"this job has {MOST_WAITING} waiting requests already", "send fewer requests"
            )
        self._n_waiting += 1
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
        except TimeoutError:
            pass
        finally:
            self._n_waiting -= 1
