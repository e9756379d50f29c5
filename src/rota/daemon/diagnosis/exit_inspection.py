"""A failed exit, with what the log says about it."""

from __future__ import annotations

from rota.core.events import WorkersExited
from rota.core.kernel import Kernel
from rota.core.model import Stopping
from rota.daemon.diagnosis import TAIL_BYTES, with_finding
from rota.engines.base import Engine, LogQuery, WorkerId
from rota.errors import RotaError
from rota.store.records import Exit


def needs_a_look(event: WorkersExited, kernel: Kernel) -> bool:
    """Somebody failed, and not because it was told to stop."""
    job = kernel.job(event.job_id)
    if job is None or job.attempt != event.attempt or isinstance(job.phase, Stopping):
        return False
    return any(event.codes.values())


async def examined(event: WorkersExited, kernel: Kernel, *, engine: Engine) -> WorkersExited:
    """With the log's word on it. All workers' logs are read: the first to end may be a victim."""
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
