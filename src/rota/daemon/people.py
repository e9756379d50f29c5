"""Who asks, and what they may touch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rota.core.model import Job, JobId
from rota.errors import UserError


class Reach(StrEnum):
    """How far a caller's credentials go."""

    FULL = "full"
    READ_ONLY = "read_only"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Caller:
    """`uid` is whom the jobs of this caller run as; None: as the daemon itself."""

    user: str
    uid: int | None = None
    is_admin: bool = False
    reach: Reach = Reach.FULL
    job_id: JobId | None = None
    """With the reach of a job: this one only."""


class ForbiddenError(UserError):
    """It is there, but not for this caller to touch."""

    code = "forbidden"


def require_write(caller: Caller) -> None:
    if caller.reach is not Reach.FULL:
        raise ForbiddenError("this token may only read", "use a token of scope 'user'")


def require_person(caller: Caller) -> None:
    """What is nobody's in particular, and yet no job's business."""
    if caller.reach is Reach.JOB:
        raise ForbiddenError("this token is for one job only", "use a token of scope 'user'")


def require_admin(caller: Caller, deed: str) -> None:
    require_write(caller)
    if not caller.is_admin:
        raise ForbiddenError(f"only an administrator may {deed}", "ask one of them")


def may_see(caller: Caller, job: Job) -> bool:
    """Logs, environment and command of a job are its owner's and the administrators' business."""
    if caller.reach is Reach.JOB:
        return job.id == caller.job_id
    return caller.is_admin or caller.user == job.spec.user


def require_owner(caller: Caller, job: Job) -> None:
    if not may_see(caller, job):
        raise ForbiddenError(
            f"job {job.id} belongs to {job.spec.user}",
            "only its owner or an administrator may do that",
        )
