"""The interface of a policy: it sizes the jobs of one pool and spends from a budget.

A policy is a frozen dataclass; its fields are its parameters. It receives jobs in the order of
submission (time, then id), all of one GPU type and one tier of ranks, running and waiting alike.
Sizes are numbers of units: one GPU, or `--gpus-per-worker` GPUs. A job that is not in the result
waits.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rota.core.model.allocation import TOLERANCE
from rota.core.model.job import Job, JobId
from rota.errors import MAX_SHOWN_PATH_CHARS, shown

Targets = dict[JobId, int]


class BadTargetsError(Exception):
    """A policy failed, or returned targets that break the rules."""


class Budget:
    """The GPUs that a policy may still spend, and how far each job may grow."""

    def __init__(
        self, free: float, card_bytes: int = 0, limits: Mapping[JobId, int] | None = None
    ) -> None:
        self.free = free
        self._card_bytes = card_bytes
        self._limits = limits or {}

    def cost(self, job: Job) -> float:
        """The GPUs that one worker of the job takes; a fraction for a GPU share."""
        spec = job.spec
        if spec.share is None:
            return spec.gpus
        if spec.share.memory_bytes and self._card_bytes:
            return spec.share.memory_bytes / self._card_bytes
        return spec.share.fraction

    def limit(self, job: Job) -> int:
        """The most workers that the job may have. Below its minimum, the job cannot run now."""
        most = job.spec.max_workers
        return min(most, self._limits.get(job.id, most)) if self._limits else most

    def affords(self, job: Job, workers: int) -> bool:
        """Whether the budget has enough GPUs for so many more workers of the job."""
        return workers * self.cost(job) <= self.free + TOLERANCE

    def grant(self, job: Job, workers: int) -> bool:
        """Spend on `workers` more workers of the job. Returns False, and spends nothing, if too
        little is left."""
        cost = workers * self.cost(job)
        if cost > self.free + TOLERANCE:
            return False
        self.free -= cost
        return True

    def refund(self, job: Job, workers: int) -> None:
        """Return what was spent on `workers` workers of the job."""
        self.free += workers * self.cost(job)

    @property
    def is_spent(self) -> bool:
        return self.free <= TOLERANCE


class Policy(Protocol):
    """Sizes jobs. See `docs/how-to/add-a-policy.md`. The result is final: a job that is not in it
    waits."""

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        """The number of workers of each job that should run now, from its minimum up to its
        limit."""
        ...


def ask(policy: Policy, jobs: Sequence[Job], *, budget: Budget, now: float) -> Targets:
    """Call the policy and check its targets: whole numbers of workers, from the minimum to the
    limit of each job, for jobs of this call only, within the budget."""
    free_before = budget.free
    with policy_failures_as_bad_targets():
        targets = policy.size(jobs, budget, now=now)
    if not isinstance(targets, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadTargetsError(f"the policy returned {shown(repr(targets))}, not a dict of sizes")
    known = {job.id: job for job in jobs}
    spent = 0.0
    for job_id, workers in targets.items():
        job = known.get(job_id)
        if job is None:
            raise BadTargetsError(f"the policy sized an unknown job: {shown(repr(job_id))}")
        least, most = job.spec.min_workers, budget.limit(job)
        if type(workers) is not int or not (workers == 0 or least <= workers <= most):
            gave = f"{shown(job.id)} {shown(repr(workers))} workers"
            raise BadTargetsError(f"the policy gave {gave}, not 0 or {least}..{most}")
        spent += workers * budget.cost(job)
    if spent > free_before + TOLERANCE * (1 + len(targets)):
        raise BadTargetsError(f"the policy spent {spent:g} GPUs of {free_before:g}")
    return targets


@contextmanager
def policy_failures_as_bad_targets() -> Generator[None]:
    """Turn any failure of a policy into `BadTargetsError`. A policy may be foreign code and fail in
    any way."""
    try:
        yield
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {shown(str(error), MAX_SHOWN_PATH_CHARS)}"
        raise BadTargetsError(f"the policy raised {why}".removesuffix(": ")) from error


@runtime_checkable
class Requeues(Protocol):
    """A policy that moves jobs between feedback queues as they use GPUs and wait."""

    def queue_at(self, job: Job, now: float) -> int:
        """The queue that the job belongs to now; `job.queue` is its last queue."""
        ...

    def requeues_at(self, job: Job, now: float) -> float:
        """When the job changes its queue if nothing else happens; infinite for never."""
        ...
