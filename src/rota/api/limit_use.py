"""What the caller uses of their limits, for `rota status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.daemon.access.authorization import AccessScope, Caller
from rota.daemon.jobs.exec_sessions import COMMAND, CONNECTION
from rota.errors import RotaError
from rota.thread_pools import REQUESTS, STORE
from rota.wire.daemon import LimitUse

if TYPE_CHECKING:
    from rota.api.app import Services


async def limit_uses(services: Services, caller: Caller) -> list[LimitUse]:
    """Empty for the token of a job: it is not for the user. Also empty if the store or the disk
    fails: the rest of the status says why."""
    if caller.scope is AccessScope.JOB:
        return []
    try:
        return await _uses(services, caller)
    except RotaError:
        return []


async def _uses(services: Services, caller: Caller) -> list[LimitUse]:
    user, limits = caller.user, services.limits
    n_queued, n_cpu_jobs = await REQUESTS.run(_n_jobs, services, user)
    sessions = services.exec_sessions
    uses = {
        "max_queued_jobs": n_queued,
        "max_cpu_jobs": n_cpu_jobs,
        "max_request_bytes": await services.submissions.request_bytes(user),
        "max_tokens": services.tokens.n_valid(user),
        "max_streams": services.streams.n_open(user),
        "max_exec_sessions": sessions.n_open(user, COMMAND),
        "max_forwards": sessions.n_open(user, CONNECTION),
        "max_connections": services.connections.n_open(user),
    }
    if caller.scope is AccessScope.FULL:
        owner = services.snapshot_access.owner(caller)
        n_bytes, n_files = await STORE.run(services.snapshots.used, owner=owner)
        uses |= {"max_shipped_bytes": n_bytes, "max_shipped_files": n_files}
    return [LimitUse(name, used, getattr(limits, name)) for name, used in uses.items()]


def _n_jobs(services: Services, user: str) -> tuple[int, int]:
    """The queued jobs of a user, and their running jobs without GPUs."""
    jobs = [job for job in services.directory.live_jobs() if job.spec.user == user]
    n_active = sum(job.is_active for job in jobs)
    n_cpu_jobs = sum(job.is_active and not job.spec.uses_gpus for job in jobs)
    return len(jobs) - n_active, n_cpu_jobs
