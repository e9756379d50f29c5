"""Commands that wait for a write, and the timer for the kernel's next deadline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from rota.core.model.commands import ChangeMembership, Command, StartWorkers
from rota.core.model.job import JobId
from rota.errors import FenceRejectedError, WriteRejectedError


@dataclass(frozen=True, slots=True)
class PendingCommands:
    """Commands, the write that they wait for, and the jobs that this write submits or changes."""

    epoch: int
    written: Future[None]
    commands: list[Command]
    submitted: tuple[JobId, ...] = ()
    changed: tuple[JobId, ...] = ()

    async def wait(self) -> Mapping[JobId, str]:
        """Wait for the write. Returns the jobs that the store rejected, with the reasons. Raises
        if nothing was written."""
        try:
            if not self.written.done():
                await asyncio.wrap_future(self.written)
            self.written.result()
        except WriteRejectedError as error:
            return dict.fromkeys(self.submitted, str(error))
        except FenceRejectedError as error:
            return {JobId(each): why for each, why in error.jobs.items()}
        return {}

    def sendable(self, rejected: Container[JobId]) -> list[Command]:
        """All commands, except starts of rejected jobs."""
        starts = StartWorkers | ChangeMembership
        return [
            each
            for each in self.commands
            if not (isinstance(each, starts) and each.job_id in rejected)
        ]


class WakeupTimer:
    """Calls `on_timer` once, at the time that was set last."""

    def __init__(self, clock: Callable[[], float], on_timer: Callable[[], None]) -> None:
        self._clock, self._on_timer = clock, on_timer
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due_s: float) -> None:
        self.cancel()
        if math.isfinite(due_s):
            delay_s = max(0.0, due_s - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
