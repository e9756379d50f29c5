"""An owner's word on the size of a job. What the policy thinks of it counts no more."""

from __future__ import annotations

from rota.core.events import JobResized
from rota.core.model import Ended, Job, Mode
from rota.daemon.desk import Desk
from rota.daemon.people import Caller
from rota.daemon.words import standing
from rota.errors import UserError
from rota.wire.jobs import JobView


async def resize(desk: Desk, caller: Caller, *, word: str, workers: int | None) -> JobView:
    """So many workers as soon as there is room for them; None: as many as the policy likes."""
    desk.shell.require_sound()
    job = desk.reach(caller, word)
    check(job, workers)
    told = desk.shell.tell(JobResized(job.id, workers, caller.user), actor=caller.user)
    await desk.shell.durable(told)
    return desk.view(caller, desk.find(job.id, caller))


def check(job: Job, workers: int | None) -> None:
    spec = job.spec
    if isinstance(job.phase, Ended):
        raise UserError(f"job {job.id} is over: {standing(job)}")
    if spec.mode is Mode.FIXED:
        raise UserError(
            f"job {job.id} cannot change its size: its mode is 'fixed'",
            "submit it with --mode restart, torchrun or live",
        )
    if spec.min_workers == spec.max_workers:
        raise UserError(
            f"job {job.id} cannot change its size: it was submitted for just one",
            "submit it for a range, such as --gpus 1..4",
        )
    if workers is not None and not spec.min_workers <= workers <= spec.max_workers:
        raise UserError(
            f"job {job.id} runs on {spec.min_workers} to {spec.max_workers} workers, not {workers}",
            "use a number in between, or 'auto' to leave it to the policy",
        )
