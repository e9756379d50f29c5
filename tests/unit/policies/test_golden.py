"""The published test vectors: four measured jobs on clusters of several sizes, and more."""

import pytest

from rota.policies.decide_case import decide_case
from rota.policies.registry import parse
from tests.unit.policies.policy_cases import MEASURED, Case, linear

FOUR_JOBS: list[Case] = [
    {"name": "a", "min": 1, "remaining_s": 4000, "speedup": MEASURED["inception"]},
    {"name": "b", "min": 1, "remaining_s": 1545, "speedup": MEASURED["resnet"]},
    {"name": "c", "min": 2, "remaining_s": 1465, "speedup": MEASURED["vgg"]},
    {"name": "d", "min": 1, "remaining_s": 2620, "speedup": MEASURED["transformer"]},
]
for place, each in enumerate(FOUR_JOBS):
    each.update(max=4, requested=2, submitted_s=place, first_started_s=place)

TOTALS = (3, 4, 8, 12, 16)
GOLDEN = {
    "fifo": ("1101", "1120", "1121", "1121", "1121"),
    "elastic-fifo": ("1101", "1120", "2231", "3342", "4444"),
    "srjf": ("0120", "0121", "1121", "1121", "1121"),
    "elastic-srjf": ("0120", "0121", "1232", "2343", "4444"),
    "tiresias": ("2000", "2200", "2222", "2222", "2222"),
    "elastic-tiresias": ("2100", "2200", "2222", "4332", "4444"),
    # On 3, 4 and 8 GPUs the original gives c one GPU, below its minimum, and panics.
    "ffdl": ("1101", "1120", "3221", "4332", "4444"),
    # On 3 and 4 likewise. Ours gives c, the shortest, its minimum first.
    "afs-l": ("0120", "0121", "2222", "3342", "4444"),
}


def answer(policy: str, gpus: int, jobs: list[Case]) -> list[int]:
    return list(decide_case(parse(policy), {"gpus": gpus, "jobs": jobs}).values())


@pytest.mark.parametrize("policy", GOLDEN)
@pytest.mark.parametrize(("column", "gpus"), list(enumerate(TOTALS)))
def test_four_measured_jobs(policy: str, column: int, gpus: int) -> None:
    assert answer(policy, gpus, FOUR_JOBS) == [int(size) for size in GOLDEN[policy][column]]


def test_fifo_skips_a_job_that_does_not_fit() -> None:
    jobs: list[Case] = [{"name": "big", "min": 8, "max": 8}, {"name": "s", "min": 1, "max": 1}]
    assert answer("fifo", 4, jobs) == [0, 1]


def test_ffdl_keeps_the_oldest_of_five_equals() -> None:
    jobs: list[Case] = [{"name": f"j{place}", "min": 1, "max": 4} for place in range(5)]
    assert answer("ffdl", 3, jobs) == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(("gpus", "sizes"), [(1, [0, 1]), (4, [1, 3])])
def test_afs_l_lets_the_later_of_two_equals_win(gpus: int, sizes: list[int]) -> None:
    jobs: list[Case] = [
        {"name": name, "min": 1, "max": 4, "remaining_s": 0, "speedup": linear()} for name in "ab"
    ]
    assert answer("afs-l", gpus, jobs) == sizes


@pytest.mark.parametrize(
    ("compaction", "sizes"),
    [(10, [4, 4, 3, 1] + [0] * 12), (20, [2, 2, 4, 4] + [0] * 12)],
)
def test_elastic_tiresias_compacts_when_many_wait(compaction: int, sizes: list[int]) -> None:
    jobs: list[Case] = [
        {"name": f"{queue}{place:02}", "min": 1, "max": 4, "requested": requested}
        | {"priority_queue": queue, "speedup": linear()}
        for queue, requested, number in ((0, 2, 2), (1, 4, 14))
        for place in range(number)
    ]
    assert answer(f"elastic-tiresias:compaction={compaction}", 12, jobs) == sizes
