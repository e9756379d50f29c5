"""What a policy is: it sizes the jobs of one pool, spending from a budget.

A policy is a frozen dataclass whose fields are its parameters. It sees jobs in the order of their
submission (time, then id), all of one GPU type and one priority, running and waiting ones alike.
Sizes are numbers of workers. A job that is not in the answer waits.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Protocol, runtime_checkable

from rota.core.model import Job, JobId
from rota.errors import PATH, shown

Targets = dict[JobId, int]

TOLERANCE = 1e-9
"""Shares are fractions of a card: ten tenths must still make one."""


class BadTargetsError(Exception):
    """A policy gave an answer that breaks the rules, or none."""


class Budget:
    """The GPUs that a policy may still spend, and how far each job may grow."""

    def __init__(
        self,
        free: float,
        card_bytes: int = 0,
        limits: Mapping[JobId, int] | None = None,
    ) -> None:
        self.free = free
        self._card_bytes = card_bytes
        self._limits = limits or {}

    def cost(self, job: Job) -> float:
        """GPUs that one worker of the job takes."""
        spec = job.spec
        if spec.share is None:
            return spec.gpus
        if spec.share.memory_bytes and self._card_bytes:
            return spec.share.memory_bytes / self._card_bytes
        return spec.share.fraction

    def limit(self, job: Job) -> int:
        """The most workers the job may have; below its minimum means that it cannot run now."""
        most = job.spec.max_workers
        return min(most, self._limits.get(job.id, most)) if self._limits else most

    def affords(self, job: Job, workers: int) -> bool:
        return workers * self.cost(job) <= self.free + TOLERANCE

    def grant(self, job: Job, workers: int) -> bool:
        """Spend on so many more workers of the job, if that much is left."""
        cost = workers * self.cost(job)
        if cost > self.free + TOLERANCE:
            return False
        self.free -= cost
        return True

    def refund(self, job: Job, workers: int) -> None:
        self.free += workers * self.cost(job)

    @property
    def is_spent(self) -> bool:
        return self.free <= TOLERANCE


class Policy(Protocol):
    """Sizes jobs. See `docs/how-to/add-a-policy.md`.

    What it answers is final, unless it declares `shares_leftovers` (see `SharesLeftovers`).
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        """Workers for each job that should run now: from its minimum up to its limit."""
        ...


def ask(policy: Policy, jobs: Sequence[Job], *, budget: Budget, now: float) -> Targets:
    """The policy's answer, if it keeps to the rules: whole numbers of workers, from the minimum
    to the limit of jobs that it was asked about, paid for by the budget."""
    free_before = budget.free
    with blaming_it():
        targets = policy.size(jobs, budget, now=now)
    if not isinstance(targets, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadTargetsError(f"it answered {shown(repr(targets))}")
    known = {job.id: job for job in jobs}
    spent = 0.0
    for job_id, workers in targets.items():
        job = known.get(job_id)
        if job is None:
            raise BadTargetsError(f"it sized {shown(repr(job_id))}, which it was not asked about")
        _check_size(job, workers, budget=budget)
        spent += workers * budget.cost(job)
    if spent > free_before + TOLERANCE * (1 + len(targets)):
        raise BadTargetsError(f"it spent {spent:g} GPUs of {free_before:g}")
    return targets


@contextmanager
def blaming_it() -> Generator[None]:
    """For calls of a policy, which may be anybody's code: it may fail in any way."""
    try:
        yield
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {shown(str(error), PATH)}"
        raise BadTargetsError(f"it raised {why}".removesuffix(": ")) from error


def _check_size(job: Job, workers: object, *, budget: Budget) -> None:
    least, most = job.spec.min_workers, budget.limit(job)
    if type(workers) is not int or not (workers == 0 or least <= workers <= most):
        given = shown(repr(workers))
        raise BadTargetsError(f"it gave {shown(job.id)} {given} workers, not 0 or {least}..{most}")


@runtime_checkable
class SharesLeftovers(Protocol):
    """A policy that leaves growth, room for newcomers and turns for the starving to the rules of
    `leftovers`, by a class attribute that is True."""

    shares_leftovers: ClassVar[bool]


@runtime_checkable
class Requeues(Protocol):
    """A policy that moves jobs between feedback queues as they use and wait for GPUs."""

    def queue_at(self, job: Job, now: float) -> int:
        """The queue that the job belongs to now, given the one it was in."""
        ...

    def requeues_at(self, job: Job, now: float) -> float:
        """When the job will change its queue if nothing else happens; infinite for never."""
        ...


NEVER = math.inf
