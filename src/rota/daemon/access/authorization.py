"""Callers, and all rules about what a caller may do.

Every check of a user, a scope or administrator rights is a function of this module. Services call
these functions before they act.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from rota.core.model.job import Job, JobId
from rota.daemon.errors import ForbiddenError, RefusedError
from rota.errors import shown

ROOT_UID = 0
T = TypeVar("T")


class AccessScope(StrEnum):
    """What the credentials of a caller allow."""

    FULL = "full"
    READ_ONLY = "read_only"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. The caller's jobs run as `uid`; None: as the daemon's own user."""

    user: str
    uid: int | None = None
    is_admin: bool = False
    scope: AccessScope = AccessScope.FULL
    job_id: JobId | None = None
    """The only job that a caller of scope JOB may use."""


# -- callers ------------------------------------------------------------------------------------


def caller_of_uid(user: str, uid: int, *, daemon_uid: int, admins: frozenset[str]) -> Caller | None:
    """The caller behind a Unix socket. None: the daemon belongs to another user.

    Every user may call a daemon that runs as root. Only root and the daemon's own user may call
    any other daemon; both are its administrators.
    """
    is_owner = uid in (ROOT_UID, daemon_uid)
    if daemon_uid != ROOT_UID and not is_owner:
        return None
    return Caller(user, uid, is_admin=is_owner or user in admins)


def caller_of_groups(
    user: str, groups: frozenset[str], *, user_groups: frozenset[str], admin_groups: frozenset[str]
) -> Caller | None:
    """The caller behind a token of the cluster. None: the user is in no group that may call.

    Without `user_groups`, every user of the cluster may call.
    """
    is_admin = bool(admin_groups & groups)
    if user_groups and not user_groups & groups and not is_admin:
        return None
    return Caller(user, is_admin=is_admin)


# -- accounts -----------------------------------------------------------------------------------


def may_run_as(uid: int | None, *, daemon_uid: int) -> bool:
    """Whether a token may run jobs as this account; None: the user has no account here. Only a
    daemon that runs as root uses the accounts of users. No token may run jobs as root."""
    return daemon_uid != ROOT_UID or uid not in (None, ROOT_UID)


def require_run_as(user: str, uid: int | None, *, daemon_uid: int) -> None:
    if not may_run_as(uid, daemon_uid=daemon_uid):
        raise ForbiddenError(
            f"no token may run jobs as {user}", "name an existing account other than root"
        )


def uid_of_jobs(caller: Caller, *, daemon_uid: int) -> int:
    """The uid that runs the caller's jobs on this machine."""
    if caller.uid is not None:
        return caller.uid
    if daemon_uid == ROOT_UID:
        raise ForbiddenError(
            f"this machine has no account {caller.user}", "use a token of another user"
        )
    return daemon_uid


# -- scopes -------------------------------------------------------------------------------------


def require_write(caller: Caller) -> None:
    if caller.scope is not AccessScope.FULL:
        raise ForbiddenError("this token may only read", "use a token of scope 'user'")


def require_person(caller: Caller) -> None:
    """Reject the token of a job. What belongs to no user in particular is still not for jobs."""
    if caller.scope is AccessScope.JOB:
        raise ForbiddenError("this token is for one job only", "use a token of scope 'user'")


def require_admin(caller: Caller, action: str) -> None:
    require_write(caller)
    if not caller.is_admin:
        raise ForbiddenError(f"only an administrator may {action}", "ask an administrator")


def job_scope(caller: Caller) -> JobId | None:
    """The only job that this caller may use; None: the scope has no such limit."""
    return caller.job_id if caller.scope is AccessScope.JOB else None


def require_job_token(
    caller: Caller, lookup: Callable[[JobId], T | None], *, action: str, hint: str
) -> T:
    """What `lookup` finds for the job whose token this is. Rejects all other callers."""
    job_id = job_scope(caller)
    found = None if job_id is None else lookup(job_id)
    if found is None:
        raise ForbiddenError(f"only a job may {action}, with the token of its attempt", hint)
    return found


# -- jobs ---------------------------------------------------------------------------------------


def may_name(caller: Caller, word: str) -> bool:
    """Whether the caller may look up a job by this word: with a job's token, only its own id."""
    return caller.scope is not AccessScope.JOB or word == caller.job_id


def may_see(caller: Caller, job: Job) -> bool:
    """Only the owner and administrators see the logs, environment and command of a job."""
    if caller.scope is AccessScope.JOB:
        return job.id == caller.job_id
    return caller.is_admin or caller.user == job.spec.user


def may_see_all(caller: Caller) -> bool:
    """Whether `may_see` is true for every job."""
    return caller.is_admin and caller.scope is not AccessScope.JOB


def require_owner_or_admin(caller: Caller, job: Job) -> None:
    if not may_see(caller, job):
        raise ForbiddenError(
            f"job {job.id} belongs to {job.spec.user}",
            "only its owner or an administrator may do that",
        )


def require_change_of(caller: Caller, user: str) -> None:
    """Only administrators select the jobs of other users."""
    require_write(caller)
    if user != caller.user and not caller.is_admin:
        raise ForbiddenError(
            f"only {shown(user)} and administrators may change the jobs of {shown(user)}",
            "leave out the user to select your own jobs",
        )


def require_submitter(caller: Caller, job: Job) -> None:
    """Only the user of a job may submit the job again: the copy runs as the caller, and another
    user's program would run with an administrator's rights."""
    require_owner_or_admin(caller, job)
    if caller.user != job.spec.user:
        raise ForbiddenError(
            f"job {job.id} belongs to {job.spec.user}, and would run as {caller.user}",
            "only its owner may submit it again",
        )


# -- priorities ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PriorityLimits:
    """The settings `max_priority` and `max_admin_priority`."""

    of_users: int = 0
    of_admins: int = 100


DEFAULT_PRIORITY_LIMITS = PriorityLimits()


def priority_limit(caller: Caller, limits: PriorityLimits) -> int:
    """The highest priority that the caller may give to a job."""
    return limits.of_admins if caller.is_admin else limits.of_users


def require_priority(
    caller: Caller, priority: int, *, limits: PriorityLimits, current: int | None = None
) -> None:
    """Reject a priority above the caller's limit. A caller may always lower a priority: `current`
    is that of an existing job."""
    if current is not None and priority <= current:
        return
    if caller.is_admin and priority > limits.of_admins:
        what = f"{priority} is above the limit of {limits.of_admins} for administrators"
        hint = f"use {limits.of_admins} or less, or raise the setting max_admin_priority"
        raise RefusedError("priority", what, hint)
    if not caller.is_admin and priority > limits.of_users:
        what = f"{priority} is above the limit of {limits.of_users} for users"
        hint = f"use {limits.of_users} or less; an administrator may use a higher priority"
        raise RefusedError("priority", what, hint)


# -- tokens -------------------------------------------------------------------------------------


def may_manage_tokens(caller: Caller, user: str) -> bool:
    """Whether the caller may list and revoke the tokens of a user."""
    return caller.is_admin or user == caller.user


def require_token_creator(caller: Caller, user: str) -> None:
    require_write(caller)
    if user != caller.user:
        require_admin(caller, "create tokens for other users")


# -- moves --------------------------------------------------------------------------------------


def require_move_target(url: str, allowed: Collection[str]) -> None:
    """The setting `move_to` lists the `allowed` targets; empty: every target is allowed."""
    if allowed and url not in allowed:
        hint = "ask an administrator to add it to the setting move_to"
        raise ForbiddenError(f"moving jobs to {shown(url)} is not allowed", hint)
