"""What workers hold of the memory of GPUs, as the driver tells: programs need not report it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from rota.core.model import JobId
from rota.engines.base import WorkerId
from rota.errors import RotaError
from rota.tasks import Bugs

log = structlog.get_logger()

LOOK_S = 5.0


class Cards:
    def __init__(self, look: Callable[[], Mapping[WorkerId, int]]) -> None:
        """`look` asks the driver, which may take its time."""
        self._look = look
        self._held: Mapping[WorkerId, int] = {}
        self._bugs = Bugs("the memory of the GPUs could not be looked at")

    def held_bytes(self, job_id: JobId, attempt: int, *, worker: int) -> int:
        """As of the last look; 0 if nobody knows."""
        return self._held.get(WorkerId(job_id, attempt, worker), 0)

    async def look(self) -> None:
        with self._bugs.of():
            try:
                self._held = await asyncio.to_thread(self._look)
            except (OSError, RotaError) as error:
                log.warning("the memory of the GPUs could not be looked at", error=str(error))

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)
