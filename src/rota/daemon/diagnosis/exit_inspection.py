"""Adds a finding from the workers' logs to an exit event, before the kernel gets the event."""

from __future__ import annotations

from rota.core.kernel.kernel import Kernel
from rota.core.model.events import WorkersExited
from rota.core.model.job import Stopping
from rota.daemon.diagnosis.diagnosis import TAIL_BYTES, with_finding
from rota.engines.interface import Engine, LogQuery, WorkerId
from rota.errors import RotaError
from rota.store.records import Exit


def needs_inspection(event: WorkersExited, kernel: Kernel) -> bool:
    """Whether a worker of the current attempt failed without a stop request."""
    job = kernel.job(event.job_id)
    if job is None or job.attempt != event.attempt or isinstance(job.phase, Stopping):
        return False
    return any(event.codes.values())


async def with_log_findings(
    event: WorkersExited, kernel: Kernel, *, engine: Engine
) -> WorkersExited:
    """The event with a finding. The logs of all workers are read: the first worker to exit may be
    the victim of another one's failure."""
    job = kernel.job(event.job_id)
    numbers = job.numbers if job is not None else tuple(event.codes)
    tails = {
        number: await _tail(engine, WorkerId(event.job_id, event.attempt, number))
        for number in numbers
    }
    return with_finding(event, tails)


async def _tail(engine: Engine, worker: WorkerId) -> str:
    try:
        found = [each async for each in engine.logs(worker, LogQuery(tail_bytes=TAIL_BYTES))]
    except (RotaError, OSError):
        return ""
    return b"".join(chunk.output for chunk in found).decode(errors="replace")


def exits_of(event: WorkersExited, now: float) -> tuple[Exit, ...]:
    return tuple(
        Exit(event.job_id, event.attempt, worker, code, now) for worker, code in event.codes.items()
    )
