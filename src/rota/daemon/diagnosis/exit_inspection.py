"""Adds a finding from the workers' logs to an exit event, before the kernel gets the event."""

from __future__ import annotations

from rota.core.model.events import WorkersExited
from rota.core.model.job import Job, Stopping
from rota.daemon.diagnosis.diagnosis import TAIL_BYTES, with_finding
from rota.engines.interface import Engine, LogQuery, WorkerId
from rota.errors import RotaError
from rota.store.records import Exit


def needs_inspection(event: WorkersExited, job: Job | None) -> bool:
    """Whether a worker of the current attempt failed without a stop request."""
    if job is None or job.attempt != event.attempt or isinstance(job.phase, Stopping):
        return False
    return any(event.codes.values())


async def with_log_findings(
    event: WorkersExited, job: Job | None, *, engine: Engine
) -> WorkersExited:
    """The event with a finding. The logs of all workers are read: the first worker to exit may be
    the victim of another one's failure."""
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
