"""Invariants of every policy on every queue: bounds, capacity, order, and no idle GPUs."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.allocation import TOLERANCE
from rota.core.model.job import GpuShare, Job, JobId, JobSpec, Queued, ServiceTime
from rota.core.scheduling.policy_api import Budget
from rota.policies.registry import POLICIES, parse


@dataclass(frozen=True)
class Pool:
    """A queue in order of submission, the GPUs for it, and how far some jobs may grow."""

    jobs: tuple[Job, ...]
    gpus: int
    limits: dict[JobId, int]

    def budget(self) -> Budget:
        return Budget(self.gpus, limits=self.limits)


@st.composite
def specs(draw: st.DrawFn, name: str) -> JobSpec:
    if draw(st.integers(0, 5)) == 0:
        fraction = draw(st.sampled_from([0.1, 0.25, 0.5, 1 / 3]))
        return JobSpec(name=name, share=GpuShare(fraction=fraction))
    least = draw(st.integers(1, 4))
    most = least + draw(st.integers(0, 5))
    requested = draw(st.integers(least, most))
    gpus = draw(st.sampled_from([1, 1, 1, 1, 2, 4, 0]))
    return JobSpec(
        name=name,
        min_workers=least,
        max_workers=most,
        requested_workers=requested,
        gpus=gpus,
        epochs=draw(st.sampled_from([0.0, 1.0, 2.5, 10.0])),
    )


SPEEDUPS = st.one_of(
    st.just([float(n) for n in range(1, 12)]),
    st.lists(st.floats(0, 12, allow_subnormal=False), max_size=10),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=10).map(sorted),
)


@st.composite
def queued(draw: st.DrawFn, place: int) -> Job:
    name = f"j{place:02}"
    return Job(
        id=JobId(name),
        spec=draw(specs(name)),
        submitted_s=float(place),
        phase=Queued(since_s=0.0),
        service=ServiceTime(as_of_s=0.0),
        first_started_s=draw(st.sampled_from([math.inf, 1.0, 2.0, 3.0])),
        queue=draw(st.integers(0, 2)),
        speed=SpeedModel(one_s=1.0, error=0.0, assumed=(0.0, *draw(SPEEDUPS))),
    )


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    jobs = tuple(draw(queued(place)) for place in range(draw(st.integers(0, 16))))
    limited = draw(st.lists(st.sampled_from(jobs), max_size=3)) if jobs else []
    limits = {job.id: draw(st.integers(0, job.spec.max_workers)) for job in limited}
    return Pool(jobs, draw(st.integers(0, 24)), limits)


@pytest.mark.parametrize("name", POLICIES)
@given(pool=pools())
def test_every_size_is_between_minimum_and_limit_and_all_fit(name: str, pool: Pool) -> None:
    budget = pool.budget()
    targets = parse(name).size(pool.jobs, budget, now=0.0)
    assert targets.keys() <= {job.id for job in pool.jobs}
    for job in pool.jobs:
        size = targets.get(job.id)
        assert size is None or job.spec.min_workers <= size <= budget.limit(job)
    used = sum(targets.get(job.id, 0) * budget.cost(job) for job in pool.jobs)
    assert used <= pool.gpus + TOLERANCE
    assert budget.free == pytest.approx(pool.gpus - used, abs=1e-6)


@pytest.mark.parametrize("name", POLICIES)
@given(pool=pools())
def test_policies_are_deterministic(name: str, pool: Pool) -> None:
    first = parse(name).size(pool.jobs, pool.budget(), now=0.0)
    again = tuple(replace(job) for job in pool.jobs)
    assert list(parse(name).size(again, pool.budget(), now=0.0).items()) == list(first.items())


@pytest.mark.parametrize("name", ["elastic-fifo", "elastic-srjf"])
@given(pool=pools())
def test_no_usable_gpu_idles(name: str, pool: Pool) -> None:
    """Work-conserving: what is left is too little for another worker of any running job below its
    limit, and for the minimum of any waiting job that may run."""
    budget = pool.budget()
    targets = parse(name).size(pool.jobs, budget, now=0.0)
    for job in pool.jobs:
        held, least, limit = targets.get(job.id, 0), job.spec.min_workers, budget.limit(job)
        wanted = 1 if held else least
        assert least > limit or held == limit or not budget.affords(job, wanted), job.id


@given(pool=pools())
def test_no_job_starves_under_fifo(pool: Pool) -> None:
    """Of the jobs that fit the cluster, the oldest gets its minimum. A waiting job waits for older
    jobs only, so every job is the oldest at some time."""
    budget = pool.budget()
    fitting = [
        job
        for job in pool.jobs
        if budget.limit(job) >= job.spec.min_workers and budget.affords(job, job.spec.min_workers)
    ]
    targets = parse("fifo").size(pool.jobs, budget, now=0.0)
    if fitting:
        assert targets[fitting[0].id] == fitting[0].spec.min_workers
    for place in range(len(fitting)):
        older = fitting[: place + 1]
        alone = parse("fifo").size(older, pool.budget(), now=0.0)
        assert (fitting[place].id in alone) == (fitting[place].id in targets)


@pytest.mark.parametrize(("plain", "elastic"), [("fifo", "elastic-fifo"), ("srjf", "elastic-srjf")])
@given(pool=pools())
def test_growth_takes_no_minimum(plain: str, elastic: str, pool: Pool) -> None:
    fixed = parse(plain).size(pool.jobs, pool.budget(), now=0.0)
    grown = parse(elastic).size(pool.jobs, pool.budget(), now=0.0)
    assert fixed.keys() == grown.keys()
    assert all(grown[job] >= size for job, size in fixed.items())


@given(pool=pools())
def test_ffdl_finds_the_best_division(pool: Pool) -> None:
    """Among the divisions of the same GPUs between the same jobs, tried one by one."""
    jobs = [job for job in pool.jobs if job.spec.share is None and job.spec.gpus > 0][:4]
    budget = pool.budget()
    targets = parse("ffdl").size(jobs, pool.budget(), now=0.0)
    runners = [job for job in jobs if job.id in targets]

    def speed(sizes: Iterable[int]) -> float:
        pairs = zip(runners, sizes, strict=True)
        return sum(job.spec.gpus * job.speed.speedup(size) for job, size in pairs)

    def fits(sizes: Iterable[int]) -> bool:
        pairs = zip(runners, sizes, strict=True)
        return sum(job.spec.gpus * size for job, size in pairs) <= pool.gpus

    ranges = [range(job.spec.min_workers, budget.limit(job) + 1) for job in runners]
    best = max(speed(sizes) for sizes in itertools.product(*ranges) if fits(sizes))
    assert speed(targets[job.id] for job in runners) == pytest.approx(best)
