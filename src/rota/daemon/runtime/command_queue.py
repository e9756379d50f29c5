"""Commands on their way out, each after what it rests upon; and when time alone is a fact."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from rota.core.commands import ChangeMembership, Command, StartWorkers
from rota.core.model import JobId
from rota.errors import NotKeptError, UnfencedError


@dataclass(frozen=True, slots=True)
class Due:
    """Commands, and what has to be written before they may leave, with the jobs that are new."""

    epoch: int
    written: Future[None]
    commands: list[Command]
    submitted: tuple[JobId, ...] = ()

    async def wait(self) -> Mapping[JobId, str]:
        """Until it is written. Returns the jobs that nobody keeps, and why; raises what kept all
        of it from being written."""
        try:
            if not self.written.done():
                await asyncio.wrap_future(self.written)
            self.written.result()
        except NotKeptError as error:
            return dict.fromkeys(self.submitted, str(error))
        except UnfencedError as error:
            return {JobId(each): why for each, why in error.jobs.items()}
        return {}

    def orders(self, unkept: Container[JobId]) -> list[Command]:
        """Without starts that rest upon what was not written."""
        starts = StartWorkers | ChangeMembership
        return [
            each
            for each in self.commands
            if not (isinstance(each, starts) and each.job_id in unkept)
        ]


class Alarm:
    """Rings once, at the moment that was set last."""

    def __init__(self, clock: Callable[[], float], ring: Callable[[], None]) -> None:
        self._clock, self._ring = clock, ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due_s: float) -> None:
        self.cancel()
        if math.isfinite(due_s):
            delay_s = max(0.0, due_s - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
