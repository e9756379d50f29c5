"""Least attained service in two queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies import multilevel_queue
from rota.policies.greedy import as_requested, grant_in_order
from rota.policies.multilevel_queue import in_queue_order
from rota.policies.parameters import above, check


@dataclass(frozen=True, slots=True)
class Tiresias:
    """Runs jobs at their requested size, those that have used little GPU time first.

    A job whose run used `threshold_gpu_s` GPU-seconds moves to the second queue; a job that waited
    `knob` times as long as its last run moves back to the first. Tiresias-L, the discretised
    two-dimensional least-attained-service policy of Gu et al., "Tiresias: A GPU Cluster Manager for
    Distributed Deep Learning", NSDI 2019; the defaults are Voda's.
    """

    threshold_gpu_s: float = field(default=3600.0, metadata=above(0))
    knob: float = field(default=8.0, metadata=above(0))

    def __post_init__(self) -> None:
        check(self)

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        return grant_in_order(in_queue_order(jobs), budget, wanted=as_requested)

    def queue_at(self, job: Job, now: float) -> int:
        return multilevel_queue.queue_at(self, job, now=now)

    def requeues_at(self, job: Job, now: float) -> float:
        return multilevel_queue.requeues_at(self, job, now=now)
