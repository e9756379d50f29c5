"""Test queues: jobs written by hand, and random cases for comparisons."""

from __future__ import annotations

import math
import random
from typing import Any

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.allocation import Slot
from rota.core.model.job import GpuShare, Job, JobId, JobSpec, Queued, Running, ServiceTime
from rota.core.model.node import NodeId
from rota.core.scheduling.policy_api import Budget, Policy

Case = dict[str, Any]

MEASURED = {
    "inception": [0, 1, 1.842, 2.692, 3.5],
    "resnet": [0, 1, 1.857, 2.6, 3.25],
    "vgg": [0, 1, 1.785, 2.5, 3.125],
    "transformer": [0, 1, 1.657, 2.148, 2.521],
}


def linear(most: int = 33) -> list[float]:
    return [float(n) for n in range(most + 1)]


def job(name: str, sizes: str = "1..1", *, place: int = 0, **changes: Any) -> Job:
    """`job("a", "1..4@2")`: a waiting job; `changes` are fields of the spec or of the job."""
    interval, _, requested = sizes.partition("@")
    least, _, most = interval.partition("..")
    spec_fields = {key: changes.pop(key) for key in list(changes) if key in JobSpec.__slots__}
    spec = JobSpec(
        name=name,
        min_workers=int(least),
        max_workers=int(most or least),
        requested_workers=int(requested or least),
        **spec_fields,
    )
    fields: dict[str, Any] = {
        "phase": Queued(since_s=0.0),
        "service": ServiceTime(as_of_s=0.0),
        "speed": SpeedModel(one_s=1.0, error=0.0, assumed=tuple(linear())),
        **changes,
    }
    return Job(id=JobId(name), spec=spec, submitted_s=float(place), **fields)


def running(n_gpus: int) -> Running:
    slots = tuple(Slot(NodeId("n"), (i,)) for i in range(n_gpus))
    return Running(since_s=0.0, allocation=slots, numbers=tuple(range(n_gpus)))


def sized(policy: Policy, jobs: list[Job], budget: Budget | int) -> dict[str, int]:
    """The size of each job, 0 for waiting jobs."""
    spent = Budget(budget) if isinstance(budget, int) else budget
    targets = policy.size(jobs, spent, now=0.0)
    assert targets.keys() <= {each.id for each in jobs}
    return {each.spec.name: targets.get(each.id, 0) for each in jobs}


def share(name: str, fraction: float, *, place: int = 0) -> Job:
    return job(name, "1..1", place=place, share=GpuShare(fraction=fraction))


def random_case(rng: random.Random) -> Case:
    """Few GPUs, many ties, and tables of every kind: measured, linear, odd, short."""
    n_jobs = rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 14, 18])
    names = [f"j{place:02}" for place in range(n_jobs)]
    rng.shuffle(names)
    most_min = rng.choice([1, 1, 2, 4])
    kind = rng.choice(["measured", "linear", "concave", "odd", "mixed"])
    jobs = [_random_job(rng, name, most_min, kind) for name in names]
    return {"gpus": rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 40]), "jobs": jobs}


def _random_job(rng: random.Random, name: str, most_min: int, kind: str) -> Case:
    least = rng.randint(1, most_min)
    most = least + rng.choice([0, 0, 1, 2, 3, 4, 7])
    return {
        "name": name,
        "min": least,
        "max": most,
        "requested": rng.randint(least, most),
        "priority_queue": rng.randint(0, 1),
        "submitted_s": rng.choice([0, 1, 2, rng.uniform(0, 9)]),
        "first_started_s": rng.choice([None, 1, 2, rng.uniform(0, 9)]),
        "remaining_s": rng.choice([0, 100, 1545, 2620, rng.uniform(0, 5000)]),
        "speedup": _random_speedups(rng, kind, most),
    }


def _random_speedups(rng: random.Random, kind: str, most: int) -> list[float]:
    if kind == "mixed":
        kind = rng.choice(["measured", "linear", "concave", "odd"])
    if kind == "measured":
        return list(rng.choice(list(MEASURED.values())))
    if kind == "linear":
        return linear(rng.choice([most, most + 1, 33]))
    if kind == "concave":
        power = rng.choice([0.5, 0.8, 0.9, 1.1])
        return [math.pow(n, power) for n in range(most + 2)]
    steps = [rng.choice([0, 0, 0.5, 1, -0.5, rng.random()]) for _ in range(rng.randint(0, most))]
    table = [0.0, rng.choice([0, 0.5, 1, 1])]
    for step in steps:
        table.append(max(0.0, table[-1] + step))
    return table
