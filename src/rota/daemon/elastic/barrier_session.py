"""Where one attempt of a job meets: its barrier, the store of its newest turn, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from rota.daemon.keyvalues import KeyValues
from rota.daemon.meeting import Meeting, Turn
from rota.errors import UserError
from rota_trainer.meetings import LONGEST_WAIT_S

MOST_WAITING = 4096
"""Requests of one job that are held at a time."""

T = TypeVar("T")


class TooManyError(UserError):
    code = "too_many"


@dataclass(frozen=True, slots=True)
class Restart:
    """A change of members, as the agents went through it."""

    generation: int
    workers: int
    gather_s: float
    """From the first call to the barrier until all were there; stopping processes is in it."""
    start_s: float
    """From there until the processes of all agents ran; what they then do is not in it."""


@dataclass(slots=True)
class Room:
    meeting: Meeting
    restart: Restart | None = None
    """The newest that is complete."""
    called_s: float | None = None
    gather_s: float = 0.0
    starts: dict[int, float] = field(default_factory=dict[int, float])
    is_over: bool = False
    _at: Turn | None = None
    _store: KeyValues = field(default_factory=KeyValues)
    _n_waiting: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    # -- time -----------------------------------------------------------------------------------

    def has_called(self, now: float) -> None:
        if self.called_s is None:
            self.called_s = now

    def has_met(self, now: float) -> None:
        self.gather_s = 0.0 if self.called_s is None else now - self.called_s
        self.called_s = None
        self.starts.clear()

    def pause_s(self) -> float | None:
        """What this change takes from the training, as far as it is known: the agents have come
        together, and their processes will start as they did the last time."""
        if not self.gather_s:
            return None
        return self.gather_s + (self.restart.start_s if self.restart is not None else 0.0)

    def has_started(self, worker: int, start_s: float) -> bool:
        """Whether with this one all have."""
        met = self.meeting.met
        if met is None or worker not in met.members or len(self.starts) == len(met.members):
            return False
        self.starts[worker] = start_s
        if len(self.starts) < len(met.members):
            return False
        longest_s = max(self.starts.values())
        self.restart = Restart(met.turn.generation, len(met.members), self.gather_s, longest_s)
        return True

    # -- the store ------------------------------------------------------------------------------

    def store(self, at: Turn) -> KeyValues | None:
        """Of a turn that is not behind; the first who asks for a newer one opens it."""
        met, roll = self.meeting.met, self.meeting.roll
        is_behind = (self._at is not None and at < self._at) or (met is not None and at < met.turn)
        if is_behind or at.generation > roll.generation:
            return None
        if at != self._at:
            self._at, self._store = at, KeyValues()
        return self._store

    # -- waiting --------------------------------------------------------------------------------

    def announce(self) -> None:
        """Something changed: everybody who waits looks again."""
        self._news.set()
        self._news = asyncio.Event()

    async def hold(self, look: Callable[[], T | None], wait_s: float) -> T | None:
        """What is found, as soon as it is; None when it is not in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(wait_s, LONGEST_WAIT_S)
        found = look()
        while found is None and not self.is_over and (left_s := until - loop.time()) > 0:
            await self._hear(left_s)
            found = look()
        return found

    async def _hear(self, wait_s: float) -> None:
        if self._n_waiting >= MOST_WAITING:
            raise TooManyError(f"this job waits for {MOST_WAITING} answers already", "ask less")
        self._n_waiting += 1
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
        except TimeoutError:
            pass
        finally:
            self._n_waiting -= 1
