from statistics import median

import pytest

from rota.errors import UserError
from rota.simulator.traces import load
from rota.simulator.workload import Workload


def work_gpu_s(workload: Workload) -> float:
    estimates = [(job.spec.estimate, job.spec.requested_workers) for job in workload.jobs]
    return sum(estimate.seconds * size for estimate, size in estimates if estimate)


def test_the_same_seed_makes_the_same_jobs():
    assert load("synthetic:jobs=50,seed=3") == load("synthetic:jobs=50,seed=3")
    assert load("synthetic:jobs=50,seed=3").jobs != load("synthetic:jobs=50,seed=4").jobs


def test_the_seed_in_the_name_comes_before_the_argument():
    assert load("synthetic:jobs=9", seed=5) == load("synthetic:jobs=9,seed=5", seed=6)


def test_the_load_is_what_was_asked_for():
    workload = load("synthetic:jobs=3000,gpus=32,load=0.5")
    offered = work_gpu_s(workload) / workload.jobs[-1].submit_s / 32
    assert offered == pytest.approx(0.5, rel=0.02)


def test_jobs_look_like_philly_s():
    jobs = load("synthetic:jobs=4000").jobs
    durations = sorted(job.spec.estimate.seconds for job in jobs if job.spec.estimate)
    assert median(durations) == pytest.approx(1133, rel=0.1)
    assert durations[int(0.9 * len(durations))] == pytest.approx(11233, rel=0.15)
    sizes = [job.spec.requested_workers for job in jobs]
    assert set(sizes) == {1, 2, 4, 8, 16, 32}
    assert sizes.count(1) / len(sizes) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("elastic", [0.0, 0.3, 1.0])
def test_a_part_of_the_jobs_is_elastic(elastic: float):
    jobs = load(f"synthetic:jobs=2000,elastic={elastic}").jobs
    ranges = [job.spec.min_workers < job.spec.max_workers for job in jobs]
    assert sum(ranges) / len(ranges) == pytest.approx(elastic, abs=0.05)


def test_sizes_are_legal_and_fit_the_cluster_that_is_meant():
    for job in load("synthetic:jobs=500,gpus=4,elastic=1").jobs:
        spec = job.spec
        assert 1 <= spec.min_workers <= spec.requested_workers <= spec.max_workers <= 4


def test_speedups_are_concave_and_shared():
    jobs = load("synthetic:jobs=200").jobs
    tables = {id(job.spec.estimate.speedups) for job in jobs if job.spec.estimate}
    assert len(tables) == 4
    estimate = jobs[0].spec.estimate
    assert estimate is not None
    gains = [b - a for a, b in zip(estimate.speedups, estimate.speedups[1:], strict=False)]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo=1", "unknown parameter 'foo=1'; known: jobs, seed, gpus, load, elastic"),
        ("jobs", "unknown parameter 'jobs'"),
        ("jobs=x", "jobs='x' is not a whole number between 1 and 1,000,000"),
        ("jobs=0", "jobs='0' is not a whole number"),
        ("jobs=1.5", "jobs='1.5' is not a whole number"),
        ("load=nan", "load='nan' is not a number between 0.001 and 1,000"),
        ("elastic=2", "elastic='2' is not a number between 0 and 1"),
        ("seed=-1", "seed='-1' is not a whole number"),
    ],
)
def test_bad_parameters(text: str, message: str):
    with pytest.raises(UserError, match=r"^synthetic: ") as caught:
        load(f"synthetic:{text}")
    assert message in str(caught.value)
