"""Voda's eight algorithms, including their defects, to compare our policies with.

A literal transcription, slow on purpose: every list is sorted and scanned as in the original. A
case has the format of `rota policy decide`. `VodaPanicError` is raised where the original's
own check of its result fails, or where it gives up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Sizes = dict[str, int]
QUEUES = (0, 1)


class VodaPanicError(Exception):
    """The original raises an error here."""


@dataclass
class VodaJob:
    name: str
    min: int
    max: int
    requested: int
    queue: int
    submitted_s: float
    first_started_s: float
    remaining_s: float
    speedup: list[float] = field(repr=False)

    def s(self, workers: int) -> float:
        return self.speedup[workers] if workers < len(self.speedup) else 0.0


def voda(name: str, case: Mapping[str, Any], *, compaction: int = 10) -> Sizes:
    """The original's result for a case with all fields given."""
    jobs = sorted(map(_job, case["jobs"]), key=lambda job: (job.submitted_s, job.name))
    total = case["gpus"]
    if name == "elastic-tiresias":
        sizes = elastic_tiresias(jobs, total, compaction)
    else:
        sizes = ALGORITHMS[name](jobs, total)
    check(jobs, total, sizes)
    return sizes


def _job(given: Mapping[str, Any]) -> VodaJob:
    first_started_s = given["first_started_s"]
    return VodaJob(
        name=given["name"],
        min=given["min"],
        max=given["max"],
        requested=given["requested"],
        queue=given["priority_queue"],
        submitted_s=given["submitted_s"],
        first_started_s=math.inf if first_started_s is None else first_started_s,
        remaining_s=given["remaining_s"],
        speedup=given["speedup"],
    )


def check(jobs: list[VodaJob], total: int, sizes: Sizes) -> None:
    for job in jobs:
        if 0 < sizes[job.name] < job.min:
            raise VodaPanicError(f"{job.name} has {sizes[job.name]}, below its minimum {job.min}")
        if sizes[job.name] > job.max:
            raise VodaPanicError(f"{job.name} has {sizes[job.name]}, above its maximum {job.max}")
    if sum(sizes.values()) > total:
        raise VodaPanicError(f"{sum(sizes.values())} of {total} GPUs")


def fifo(jobs: list[VodaJob], total: int) -> Sizes:
    sizes, free = {}, total
    for job in jobs:
        sizes[job.name] = job.min if free >= job.min else 0
        free -= sizes[job.name]
    return sizes


def srjf(jobs: list[VodaJob], total: int) -> Sizes:
    return fifo(sorted(jobs, key=lambda job: job.remaining_s), total)


def elastic_fifo(jobs: list[VodaJob], total: int) -> Sizes:
    sizes = fifo(jobs, total)
    satisfied = {job.name: sizes[job.name] in (0, job.max) for job in jobs}
    return _rounds(jobs, total, sizes, satisfied)


def elastic_srjf(jobs: list[VodaJob], total: int) -> Sizes:
    """Forgets that a job whose minimum is its maximum is satisfied."""
    jobs = sorted(jobs, key=lambda job: job.remaining_s)
    sizes = fifo(jobs, total)
    satisfied = {job.name: sizes[job.name] == 0 for job in jobs}
    return _rounds(jobs, total, sizes, satisfied)


def _rounds(jobs: list[VodaJob], total: int, sizes: Sizes, satisfied: dict[str, bool]) -> Sizes:
    """Gives to jobs below the maximum OR not satisfied, so also to jobs without their minimum."""
    free = total - sum(sizes.values())
    while free > 0 and not all(satisfied.values()):
        for job in jobs:
            if sizes[job.name] < job.max or not satisfied[job.name]:
                sizes[job.name] += 1
                free -= 1
                if sizes[job.name] == job.max:
                    satisfied[job.name] = True
                if free == 0:
                    break
    return sizes


def tiresias(jobs: list[VodaJob], total: int) -> Sizes:
    sizes, free = {}, total
    for queue in QUEUES:
        mine = [job for job in jobs if job.queue == queue]
        for job in sorted(mine, key=lambda job: job.first_started_s):
            sizes[job.name] = job.requested if free >= job.requested else 0
            free -= sizes[job.name]
    return sizes


def elastic_tiresias(jobs: list[VodaJob], total: int, compaction: int) -> Sizes:
    sizes = tiresias(jobs, total)
    gain = {job.name: _gain(job, sizes[job.name]) for job in jobs}
    if sum(size == 0 for size in sizes.values()) > compaction:
        for job in jobs:
            if job.queue >= 1 and sizes[job.name] > 0:
                sizes[job.name] = job.min
                gain[job.name] = _gain(job, job.min)
    free = total - sum(sizes.values())
    listed = [job for job in jobs if sizes[job.name] < job.max and free >= job.min]
    while free > 0 and listed:
        listed.sort(key=lambda job: job.queue)
        listed.sort(key=lambda job: gain[job.name], reverse=True)
        job = listed[0]
        if gain[job.name] <= 0:
            break
        if sizes[job.name] == 0:
            if free < job.min:
                listed.remove(job)
                continue
            sizes[job.name] = job.min
            free -= job.min
            gain[job.name] = _gain(job, job.min)
        else:
            sizes[job.name] += 1
            free -= 1
            gain[job.name] = _gain(job, sizes[job.name])
            if sizes[job.name] >= job.max:
                listed.remove(job)
    return sizes


def _gain(job: VodaJob, held: int) -> float:
    return job.s(held + 1) - job.s(held) if held else job.s(job.min) / job.min


def ffdl(jobs: list[VodaJob], total: int) -> Sizes:
    """Ignores minima; a job that it keeps gets at least one GPU."""
    sizes = {job.name: 0 for job in jobs}
    if not jobs:
        return sizes
    kept = jobs[:total]
    most = [[0.0] * (total + 1)] + [[-10_000.0] * (total + 1) for _ in kept]
    taken = [[0] * (total + 1) for _ in range(len(kept) + 1)]
    for j, job in enumerate(kept, start=1):
        for k in range(1, total + 1):
            for g in range(1, min(job.max, k) + 1):
                speed = job.s(g) + most[j - 1][k - g]
                if speed > most[j][k]:
                    most[j][k] = speed
                    taken[j][k] = g
    if most[len(kept)][total] <= 0:
        raise VodaPanicError("infeasible")
    k = total
    for j in range(len(kept), 0, -1):
        sizes[kept[j - 1].name] = taken[j][k]
        k -= taken[j][k]
    return sizes


def afs_l(jobs: list[VodaJob], total: int) -> Sizes:
    """Ignores minima; a job leaves at its maximum."""
    sizes = {job.name: 0 for job in jobs}
    listed = list(jobs)
    for _ in range(total):
        if not listed:
            break
        champion = listed[0]
        for candidate in listed[1:]:
            champion = _better(champion, candidate, sizes)
        sizes[champion.name] += 1
        if sizes[champion.name] >= champion.max:
            listed.remove(champion)
    return sizes


def _better(j: VodaJob, b: VodaJob, sizes: Sizes) -> VodaJob:
    if sizes[j.name] == 0 and sizes[b.name] == 0:
        return b if j.remaining_s >= b.remaining_s else j
    workers = sizes[j.name]
    length_j = math.inf if workers == 0 else _quotient(j.remaining_s, j.s(workers))
    length_b = math.inf if workers == 0 else _quotient(b.remaining_s, b.s(workers))
    if length_j >= length_b:
        j, b = b, j
    n_j, n_b = sizes[j.name], sizes[b.name]
    left = _quotient(b.s(n_b + 1) - b.s(n_b), b.s(n_b + 1))
    right = _quotient(j.s(n_j + 1) - j.s(n_j), j.s(n_j))
    return b if left > right else j


def _quotient(dividend: float, divisor: float) -> float:
    """As floating point does it: nothing raises."""
    if divisor != 0:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.inf if dividend > 0 else -math.inf


ALGORITHMS: dict[str, Callable[[list[VodaJob], int], Sizes]] = {
    "fifo": fifo,
    "elastic-fifo": elastic_fifo,
    "srjf": srjf,
    "elastic-srjf": elastic_srjf,
    "tiresias": tiresias,
    "ffdl": ffdl,
    "afs-l": afs_l,
}
