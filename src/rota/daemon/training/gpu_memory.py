"""Polls the GPU memory of each worker from the driver, so that programs need not report it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from rota.core.model.job import JobId
from rota.engines.interface import GpuMemoryReader, WorkerId
from rota.errors import RotaError
from rota.tasks import ErrorIsolation
from rota.thread_pools import DEVICES

log = structlog.get_logger()

LOOK_S = 5.0


class GpuMemoryMonitor:
    def __init__(self, reader: GpuMemoryReader) -> None:
        self._reader = reader
        self._held: Mapping[WorkerId, int] = {}
        self._isolation = ErrorIsolation("gpu memory poll failed")

    def held_bytes(self, job_id: JobId, attempt: int, *, worker: int) -> int:
        """The GPU memory of a worker at the last poll; 0 if unknown."""
        return self._held.get(WorkerId(job_id, attempt, worker), 0)

    async def poll(self) -> None:
        with self._isolation.of():
            try:
                self._held = await DEVICES.run(self._reader.gpu_memory_by_worker)
            except (OSError, RotaError) as error:
                log.warning("gpu memory poll failed", error=str(error))

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(LOOK_S)
