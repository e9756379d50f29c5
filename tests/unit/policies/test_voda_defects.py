"""Defects of Voda's policies, by number, and the behaviour of our policies.

Each test first shows the failure of the original, where possible.
"""

from typing import Any

import pytest

from rota.core.model.job import Queued, ServiceTime
from rota.errors import UserError
from rota.policies.decide_case import decide_case
from rota.policies.registry import POLICIES, parse
from rota.policies.tiresias import Tiresias
from tests.unit.policies.policy_cases import Case, job, linear, running, sized
from tests.unit.policies.voda_oracle import VodaPanicError, voda

DEFAULTS: Case = {
    "requested": 1,
    "priority_queue": 0,
    "first_started_s": None,
    "remaining_s": 0,
    "speedup": linear(),
}


def case(gpus: int, *jobs: tuple[str, int, int], **changes: Any) -> Case:
    return {
        "gpus": gpus,
        "jobs": [
            DEFAULTS
            | {"name": name, "min": least, "max": most, "requested": least, "submitted_s": place}
            | changes
            for place, (name, least, most) in enumerate(jobs)
        ],
    }


def ours_where_voda_panics(policy: str, given: Case, panic: str) -> dict[str, int]:
    with pytest.raises(VodaPanicError, match=panic):
        voda(policy, given)
    return decide_case(parse(policy), given)


def test_defect_1_policies_that_need_speeds_schedule_jobs_without_history() -> None:
    """The original's lookup result is lost, and five of eight never schedule."""
    given = [job("a", "1..2"), job("b", "1..2", place=1)]
    for name in POLICIES:
        assert sum(sized(parse(name), given, 4).values()) >= 2, name


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf"])
def test_defect_2_a_job_without_its_minimum_collects_no_single_gpus(policy: str) -> None:
    given = case(4, ("A", 1, 4), ("B", 4, 4))
    assert ours_where_voda_panics(policy, given, "B has 1, below") == {"A": 4, "B": 0}


def test_defect_2_elastic_srjf_does_not_grow_a_fixed_job_past_its_maximum() -> None:
    given = case(4, ("A", 1, 1))
    assert ours_where_voda_panics("elastic-srjf", given, "A has 4, above") == {"A": 1}


def test_defect_2_elastic_tiresias_does_not_grow_past_a_maximum_that_is_the_minimum() -> None:
    """The original looks at the maximum after a single GPU, but not after a minimum."""
    given = case(4, ("A", 1, 4), ("B", 2, 2), priority_queue=1)
    given["jobs"][0] |= {"requested": 3, "speedup": [0, 1, 1.1, 1.2, 1.3]}
    with pytest.raises(VodaPanicError, match="B has 3, above"):
        voda("elastic-tiresias", given, compaction=0)
    assert decide_case(parse("elastic-tiresias:compaction=0"), given) == {"A": 2, "B": 2}


def test_defect_3_ffdl_gives_a_minimum_or_nothing() -> None:
    given = case(2, ("A", 1, 4), ("B", 2, 4))
    assert ours_where_voda_panics("ffdl", given, "B has 1, below") == {"A": 2, "B": 0}


def test_defect_3_afs_l_gives_a_minimum_or_nothing() -> None:
    given = case(3, ("A", 2, 4), ("B", 2, 4), speedup=[0, 1, 1.5, 1.8, 2])
    assert ours_where_voda_panics("afs-l", given, "A has 1, below") == {"A": 0, "B": 3}


def test_defect_3_afs_l_without_a_job_whose_minimum_is_not_left() -> None:
    given = case(5, ("A", 4, 8), ("B", 2, 2), ("C", 1, 1))
    assert ours_where_voda_panics("afs-l", given, "below") == {"A": 0, "B": 2, "C": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_defect_3_no_gpus_at_all_is_an_answer(policy: str) -> None:
    given = case(0, ("A", 1, 4))
    if policy == "ffdl":
        with pytest.raises(VodaPanicError, match="infeasible"):
            voda(policy, given)
    assert decide_case(parse(policy), given) == {"A": 0}


def test_defect_3_ffdl_takes_jobs_that_nothing_speeds_up() -> None:
    given = case(4, ("A", 1, 4), ("B", 1, 4), speedup=[0])
    assert ours_where_voda_panics("ffdl", given, "infeasible") == {"A": 1, "B": 1}


@pytest.mark.parametrize("policy", ["tiresias", "elastic-tiresias"])
def test_defect_7_jobs_that_never_started_come_after_those_that_did(policy: str) -> None:
    jobs = [job("new"), job("old", place=1, first_started_s=5.0)]
    assert sized(parse(policy), jobs, 1) == {"new": 0, "old": 1}


@pytest.mark.parametrize("policy", ["tiresias", "elastic-tiresias"])
def test_defect_8_a_queue_beyond_the_last_is_the_last(policy: str) -> None:
    jobs = [job("far", queue=7), job("last", place=1, queue=1), job("first", place=2)]
    assert sized(parse(policy), jobs, 3) == {"far": 1, "last": 1, "first": 1}
    assert sized(parse(policy), jobs, 2) == {"far": 1, "last": 0, "first": 1}
    assert Tiresias().queue_at(jobs[0], 0.0) == 1


def test_defect_8_a_running_job_is_not_promoted_for_the_wait_before_its_start() -> None:
    waited = ServiceTime(as_of_s=0.0, running_s=10.0, waiting_s=900.0, last_waiting_s=900.0)
    restarted = job("a", queue=1, phase=running(1), service=waited, first_started_s=1.0)
    assert Tiresias().queue_at(restarted, 1.0) == 1
    assert Tiresias().requeues_at(restarted, 1.0) == float("inf")


def test_defect_8_a_promoted_job_is_not_demoted_again_for_the_run_before_its_wait() -> None:
    ran = ServiceTime(as_of_s=0.0, last_gpu_s=9_000.0, last_running_s=10.0, last_waiting_s=900.0)
    waiting = job("a", queue=1, phase=Queued(0.0), service=ran, first_started_s=1.0)
    assert Tiresias().queue_at(waiting, 0.0) == 0
    promoted = job("a", queue=0, phase=Queued(0.0), service=ran, first_started_s=1.0)
    assert Tiresias().queue_at(promoted, 5.0) == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min": 0}, "min' must be a whole number from 1"),
        ({"min": 5}, "min' is 5, more than max"),
        ({"requested": 5}, "requested' must be a whole number from 1 to 4"),
    ],
)
def test_defect_11_sizes_are_validated(wrong: Case, message: str) -> None:
    given = case(4, ("A", 1, 4), **wrong)
    with pytest.raises(UserError, match=message):
        decide_case(parse("fifo"), given)


@pytest.mark.parametrize("policy", POLICIES)
def test_defect_12_a_worker_may_have_several_gpus(policy: str) -> None:
    jobs = [job("two", "1..4", gpus=2), job("one", "1..1", place=1)]
    sizes = sized(parse(policy), jobs, 5)
    assert 2 * sizes["two"] + sizes["one"] <= 5
    assert sizes["two"] >= 1
    assert sizes["one"] == 1
