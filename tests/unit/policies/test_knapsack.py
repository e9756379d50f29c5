"""The division of `ffdl`: its shortcuts find the same result as trying everything."""

import resource
from random import Random

import numpy as np
import pytest

from rota.policies import knapsack
from rota.policies.knapsack import Option, best_extras
from tests.unit.policies.test_decide_case import decide


def option(*speedups: float, cost: int = 1) -> Option:
    return Option(np.array(speedups, dtype=np.float64), cost)


def tried_one_by_one(options: list[Option], room: int) -> list[int]:
    """The recurrence as it stands in the paper, size by size."""
    best, choices = [0.0] * (room + 1), list[list[int]]()
    for speedups, cost in options:
        before, best, choice = best, [float(speedups[0]) + each for each in best], [0] * (room + 1)
        for extra in range(1, len(speedups)):
            for x in range(extra * cost, room + 1):
                value = cost * float(speedups[extra]) + before[x - extra * cost]
                if value > best[x]:
                    best[x], choice[x] = value, extra
        choices.append(choice)
    extras: list[int] = []
    for choice, (_, cost) in zip(reversed(choices), reversed(options), strict=True):
        extras.append(choice[room])
        room -= extras[-1] * cost
    return extras[::-1]


def drawn(random: Random) -> Option:
    least, most = random.randint(1, 5), random.randint(0, 40)
    if random.random() < 0.7:
        return option(*range(least, least + most + 1))
    steps = [random.choice((0.0, 0.5, 1.0, 1.0, 2.0)) for _ in range(most + 1)]
    return option(*(least + sum(steps[:n]) for n in range(most + 1)))


@pytest.mark.parametrize("cells", [knapsack.MAX_CELLS, 200])
@pytest.mark.parametrize("seed", range(40))
def test_shortcuts_give_the_same_result(
    monkeypatch: pytest.MonkeyPatch, seed: int, cells: int
) -> None:
    monkeypatch.setattr(knapsack, "MAX_CELLS", cells)
    monkeypatch.setattr(knapsack, "MANY_SIZES", 8)
    random = Random(seed)
    options = [drawn(random) for _ in range(random.randint(1, 8))]
    room = random.randint(1, 120)
    usable = [Option(each.speedups[: room + 1], each.cost) for each in options]
    assert best_extras(usable, room) == tried_one_by_one(usable, room)


def test_workers_of_several_gpus() -> None:
    options = [option(*range(1, 21), cost=3), option(1, 2, 4, 5), option(*range(2, 30))]
    assert best_extras(options, 41) == tried_one_by_one(options, 41)


def test_no_options_give_no_extras() -> None:
    assert best_extras([], 5) == []


@pytest.mark.parametrize("policy", ["ffdl", "elastic-fifo", "fifo"])
def test_a_large_case_needs_little_memory(policy: str) -> None:
    """Each with a largest size of its own: a table for every job would take gigabytes."""
    jobs = [{"name": f"j{n}", "min": 1, "max": 100_000 - n} for n in range(300)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = decide(policy, {"gpus": 100_000, "jobs": jobs})
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert sum(answer.values()) == (300 if policy == "fifo" else 100_000)
    assert grown_kib < 400_000
