"""Finish-time fairness against values worked out by hand, and against a slow integral."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.simulator.fairness import JobLifetime, fair_times, mean_contenders


def fixed(
    *, gpus: int = 1, run_s: float = 100.0, start: float = 0.0, end: float = 100.0
) -> JobLifetime:
    """A job that runs on so many GPUs or not at all: one worker with all of them."""
    return JobLifetime(start, end, gpus_per_worker=gpus, run_s=(run_s,))


def elastic(*run_s: float, min_workers: int = 1, end: float = 100.0) -> JobLifetime:
    return JobLifetime(0.0, end, gpus_per_worker=1, run_s=run_s, min_workers=min_workers)


def test_no_jobs_no_times():
    assert fair_times([], 8) == []


def test_alone_a_job_has_the_cluster():
    assert fair_times([fixed(gpus=4)], 4) == [100.0]


def test_a_share_smaller_than_a_fixed_job_slows_it_in_proportion():
    assert fair_times([fixed(gpus=4)], 1) == [400.0]
    assert fair_times([fixed(gpus=4), fixed(gpus=4)], 4) == [200.0, 200.0]


def test_a_fixed_number_of_workers_is_the_same_as_one_worker_with_all_gpus():
    workers = JobLifetime(
        0.0, 100.0, gpus_per_worker=1, run_s=(400.0, 200.0, 150.0, 100.0), min_workers=4
    )
    assert fair_times([workers], 1) == fair_times([fixed(gpus=4)], 1) == [400.0]


def test_a_share_between_two_sizes_is_partly_each():
    # 1.5 GPUs each: half of the time on 1 (1/100 a second), half on 2 (1/50 a second).
    assert fair_times([elastic(100.0, 50.0), elastic(100.0, 50.0)], 3) == pytest.approx(
        [100 / 1.5, 100 / 1.5]
    )


def test_above_its_maximum_a_job_gains_nothing():
    assert fair_times([elastic(100.0, 60.0)], 64) == [60.0]


def test_a_larger_share_is_never_slower():
    assert fair_times([elastic(100.0, 60.0, 80.0)], 3) == [60.0]


def test_a_job_without_gpus_is_not_held_back_by_its_share():
    cpu_only = JobLifetime(0.0, 10.0, gpus_per_worker=0, run_s=(10.0,))
    assert fair_times([cpu_only, fixed(gpus=4)], 1)[0] == 10.0


def test_a_share_of_a_gpu_counts_as_its_fraction():
    half = JobLifetime(0.0, 100.0, gpus_per_worker=0.5, run_s=(100.0,))
    assert fair_times([half] * 2, 1) == [100.0, 100.0]
    assert fair_times([half] * 4, 1) == [200.0] * 4


def test_extremes_of_length():
    endless = fixed(run_s=math.inf)
    empty = fixed(run_s=0.0, end=0.0)
    assert fair_times([endless, empty], 1) == [math.inf, 0.0]


def test_contenders_are_counted_over_the_jobs_own_life():
    submitted = np.array([0.0, 50.0, 50.0])
    finished = np.array([100.0, 100.0, math.inf])
    # The first is alone for half of its life; the last counts until the end of what is known.
    assert mean_contenders(submitted, finished).tolist() == [2.0, 3.0, 3.0]


def test_an_instant_job_competes_with_the_jobs_at_that_time():
    submitted = np.array([0.0, 5.0, 20.0])
    finished = np.array([10.0, 5.0, 20.0])
    assert mean_contenders(submitted, finished).tolist() == [1.0, 2.0, 1.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 50), st.booleans()), min_size=1, max_size=12
    )
)
def test_prefix_sums_equal_the_plain_integral(jobs: list[tuple[int, int, bool]]):
    submitted = [float(start) for start, _, _ in jobs]
    finished = [float(start + run) if ends else math.inf for start, run, ends in jobs]
    horizon = max([*submitted, *(end for end in finished if math.isfinite(end))])
    ends = [min(end, horizon) for end in finished]
    got = mean_contenders(np.array(submitted), np.array(finished))
    for mean, start, end in zip(got, submitted, ends, strict=True):
        if end > start:
            met = sum(
                max(0.0, min(end, other_end) - max(start, other_start))
                for other_start, other_end in zip(submitted, ends, strict=True)
            )
            assert mean == pytest.approx(met / (end - start))


def test_as_many_jobs_as_philly_has():
    generator = np.random.default_rng(1)
    starts = np.sort(generator.uniform(0, 8e6, 82_247))
    runs = generator.exponential(9_000, 82_247)
    lifetimes = [
        JobLifetime(start, start + run, gpus_per_worker=1, run_s=(run, run / 2, run / 3, run / 4))
        for start, run in zip(starts.tolist(), runs.tolist(), strict=True)
    ]
    times = fair_times(lifetimes, 768)
    assert len(times) == len(lifetimes)
    assert min(times) > 0
