"""Ranks: the order of all jobs in the queue.

The first step of a round sorts jobs by the tier of their rank. Every later step and every
explanation compares ranks, never priorities, so that a new rule about the order of jobs is written
in one place.
"""

from __future__ import annotations

from typing import NamedTuple

from rota.core.model.job import Job, JobId

Tier = tuple[int, int, int, int]


class Rank(NamedTuple):
    """The position of a job in the queue: totally ordered, the lowest comes first.

    The class, the project and the person are the same for all jobs until shares are divided among
    them.
    """

    job_class: int
    project: int
    person: int
    negated_priority: int
    """A higher priority comes first."""
    submitted_s: float
    job_id: JobId

    @property
    def tier(self) -> Tier:
        """Jobs of one tier have equal rights; the policy decides between them."""
        return self[:4]

    def outranks(self, other: Rank) -> bool:
        """Whether this job may take the GPUs of the other job without regard to its costs."""
        return self[:4] < other[:4]


def tier_of(job: Job) -> Tier:
    """The tier of a job: currently its priority alone."""
    return (0, 0, 0, -job.spec.priority)


def rank_of(job: Job) -> Rank:
    """The rank of a job: its tier, then its time of submission."""
    return Rank._make((*tier_of(job), job.submitted_s, job.id))
