"""Runs jobs through a real kernel and returns the batches that a store has to write.

A workload is a list of steps: an action and two numbers that choose its job and its details. So
Hypothesis can draw a workload, and a seeded child process can repeat it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from rota.core.kernel.kernel import Kernel
from rota.core.model.effects import Effects
from rota.core.model.events import (
    Event,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobResized,
    JobSubmitted,
    MembershipChanged,
    NodeLost,
    NodeSeen,
    ProgressReported,
    TimerFired,
    WorkersExited,
    WorkersStarted,
)
from rota.core.model.job import Estimate, GpuShare, Job, JobId, JobSpec, Mode
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.model.units import GIB
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.policies.registry import parse
from rota.store.interface import Batch
from rota.store.records import Exit, Submission

Step = tuple[int, int, int]
EXIT_CODES = (0, 1, 137)


def node(number: int) -> Node:
    gpus = tuple(Gpu(index, "A100", 16 * GIB) for index in range(4))
    return Node(NodeId(f"node-{number}"), gpus, cpus=32, memory_bytes=256 * GIB, max_workers=16)


def spec(number: int, variant: int = 0) -> JobSpec:
    """Some job: elastic or fixed, whole GPUs or shares, with and without everything optional."""
    is_shared = variant % 5 == 4
    return JobSpec(
        name=f"train-{number % 7}",
        user=("ann", "ben", "eve")[variant % 3],
        project=("vision", "speech")[variant % 2],
        priority=variant % 3,
        mode=tuple(Mode)[variant % 4],
        max_workers=1 if is_shared else 1 + variant % 4,
        gpus=0 if is_shared else 1,
        share=GpuShare(fraction=0.5) if is_shared else None,
        epochs=10.0,
        estimate=Estimate(600.0) if variant % 2 else None,
        category="resnet" if variant % 3 else "",
        retries=variant % 3,
        time_limit_s=300.0 if variant % 7 == 6 else float("inf"),
        min_runtime_s=0.0,
    )


def submission(job_id: JobId, user: str, key: str | None = None) -> Submission:
    return Submission(job_id, user, 1000, '{"argv": ["python", "train.py"]}', key)


class StoreWorkload:
    """A kernel, and the time."""

    def __init__(self, *, first_job: int = 1) -> None:
        self.kernel = Kernel(Rules(restart_cost_s=0.0, backoff_s=1.0))
        self.now = 1_000.0
        self._policy = parse("elastic-fifo")
        self._n_jobs = first_job - 1
        self._deeds: Sequence[Callable[[int, int], Batch]] = (
            self.submit,
            self._round,
            self._round,
            self._started,
            self._exited,
            self._progressed,
            self._switched,
            self._asked,
            self._node,
            self._timer,
        )

    def step(self, step: Step) -> Batch:
        deed, who, how = step
        self.now += 0.5
        return self._deeds[deed % len(self._deeds)](who, how)

    def submit(self, who: int, how: int) -> Batch:
        self._n_jobs += 1
        job_id, wanted = JobId(f"job-{self._n_jobs:05}"), spec(who, how)
        told = JobSubmitted(job_id, wanted, is_held=how % 11 == 10)
        sent = submission(job_id, wanted.user, key=f"key-{self._n_jobs}" if how % 2 else None)
        return Batch(self._apply(told), submissions=(sent,), actor=wanted.user)

    def _round(self, _who: int, _how: int) -> Batch:
        return Batch(self.kernel.commit(decide(self.kernel.view(self.now), self._policy), self.now))

    def _started(self, who: int, _how: int) -> Batch:
        job = self._pick(who, is_active=True)
        if job is None:
            return Batch()
        return Batch(self._apply(WorkersStarted(job.id, job.attempt, frozenset(job.numbers))))

    def _exited(self, who: int, how: int) -> Batch:
        job = self._pick(who, is_active=True)
        if job is None:
            return Batch()
        # Now and then the first one stays.
        numbers = (job.numbers[1:] if how % 8 == 7 else ()) or job.numbers
        codes = dict.fromkeys(numbers, EXIT_CODES[how % 3])
        exits = tuple(
            Exit(job.id, job.attempt, number, code, self.now) for number, code in codes.items()
        )
        told = WorkersExited(job.id, job.attempt, codes, is_retriable=how % 5 == 1)
        if how % 2:
            told = replace(told, reason="left 1 process behind, which was ended")
        return Batch(self._apply(told), exits=exits)

    def _progressed(self, who: int, how: int) -> Batch:
        job = self._pick(who, is_active=True)
        if job is None:
            return Batch()
        done = min(job.spec.epochs, job.epochs_done + 1)
        told = ProgressReported(job.id, job.attempt, done, 1.0 + how, memory_bytes=how * GIB)
        return Batch(self._apply(told))

    def _switched(self, who: int, how: int) -> Batch:
        job = self._pick(who, is_active=True)
        if job is None:
            return Batch()
        told = MembershipChanged(job.id, job.attempt, job.generation, pause_s=how / 10 or None)
        return Batch(self._apply(told))

    def _asked(self, who: int, how: int) -> Batch:
        job = self._pick(who)
        if job is None:
            return Batch()
        if how % 8 == 7:
            return Batch(self._apply(JobResized(job.id, 1 + how % 2, actor="eve")), actor="eve")
        if how % 8 == 6:
            told = JobEdited(job.id, "eve", name=f"new-{how}", priority=how, time_limit_s=how * 9.0)
            return Batch(self._apply(told), actor="eve")
        wish = (JobCancelled, JobHeld, JobReleased)[how % 3]
        return Batch(self._apply(wish(job.id, actor="eve")), actor="eve")

    def _node(self, who: int, how: int) -> Batch:
        known = node(who % 3)
        is_lost = how % 3 == 2
        return Batch(self._apply(NodeLost(known.id) if is_lost else NodeSeen(known)))

    def _timer(self, _who: int, how: int) -> Batch:
        self.now += how
        return Batch(self._apply(TimerFired()))

    def _apply(self, event: Event) -> Effects:
        return self.kernel.apply(event, self.now)

    def _pick(self, who: int, *, is_active: bool = False) -> Job | None:
        jobs = [job for job in self.kernel.jobs.values() if job.is_active or not is_active]
        return jobs[who % len(jobs)] if jobs else None


OPENING: tuple[Step, ...] = ((8, 0, 0), (8, 1, 0), (0, 1, 3), (0, 2, 7), (1, 0, 0), (3, 0, 0))
"""Two nodes, two jobs, a round, and one of them runs."""


def random_steps(seed: int, count: int) -> list[Step]:
    chance = random.Random(seed)
    drawn = [
        (chance.randrange(10), chance.randrange(100), chance.randrange(100)) for _ in range(count)
    ]
    return [*OPENING, *drawn]


def batches(steps: Sequence[Step]) -> list[Batch]:
    life = StoreWorkload()
    return [life.step(step) for step in steps]
