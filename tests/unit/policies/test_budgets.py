"""Limits, GPU shares and workers with several GPUs, which the original policies lack."""

import pytest

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.job import JobId
from rota.core.scheduling.policy_api import Budget
from rota.policies.registry import POLICIES, parse
from tests.unit.policies.policy_cases import job, share, sized


def limited(gpus: int, **limits: int) -> Budget:
    return Budget(gpus, limits={JobId(name): limit for name, limit in limits.items()})


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_whose_limit_is_below_its_minimum_leaves_its_gpus_to_others(policy: str) -> None:
    jobs = [job("a", "2..4"), job("b", "1..4", place=1)]
    sizes = sized(parse(policy), jobs, limited(4, a=1))
    assert sizes["a"] == 0
    assert sizes["b"] >= 1


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_grows_past_a_limit(policy: str) -> None:
    jobs = [job("a", "1..4@4"), job("b", "1..4@4", place=1)]
    assert sized(parse(policy), jobs, limited(8, a=2))["a"] in (1, 2)


def test_tiresias_gives_the_limit_where_the_request_is_more() -> None:
    assert sized(parse("tiresias"), [job("a", "1..4@4")], limited(8, a=2)) == {"a": 2}


@pytest.mark.parametrize("policy", POLICIES)
def test_ten_tenths_make_one_gpu(policy: str) -> None:
    jobs = [share(f"s{place:02}", 0.1, place=place) for place in range(11)]
    assert sum(sized(parse(policy), jobs, 1).values()) == 10


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "ffdl"])
def test_whole_gpus_grow_beside_shares(policy: str) -> None:
    jobs = [share("s", 0.5), job("a", "1..4", place=1)]
    assert sized(parse(policy), jobs, 4) == {"s": 1, "a": 3}


def test_ffdl_counts_the_gpus_of_a_worker() -> None:
    """Two GPUs for a second wide worker bring 0.8 GPUs' worth, then 2 in a linear table."""
    slow = SpeedModel(one_s=1.0, error=0.0, assumed=(0, 1, 1.4))
    jobs = [job("wide", "1..2", gpus=2, speed=slow), job("a", "1..4", place=1)]
    assert sized(parse("ffdl"), jobs, 6) == {"wide": 1, "a": 4}
    assert sized(parse("ffdl"), jobs, 7) == {"wide": 1, "a": 4}
    assert sized(parse("ffdl"), jobs, 8) == {"wide": 2, "a": 4}
    jobs[0] = job("wide", "1..2", gpus=2)
    assert sized(parse("ffdl"), jobs, 6) == {"wide": 2, "a": 2}


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_without_gpus_get_at_least_their_minimum(policy: str) -> None:
    jobs = [job("cpu", "1..2", gpus=0), job("a", "1..1", place=1)]
    sizes = sized(parse(policy), jobs, 1)
    assert sizes["cpu"] >= 1
    assert sizes["a"] == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_queue_gives_no_targets(policy: str) -> None:
    assert sized(parse(policy), [], 4) == {}
