"""Who is named as slow, and who is not."""

from collections import deque

import pytest

from rota.daemon.stragglers import REPORTS, slowness
from rota.daemon.trainees import Team, Trainee


def steady(*paces: float) -> dict[int, deque[float]]:
    """As they are kept of each worker."""
    return {worker: deque([pace] * REPORTS, maxlen=REPORTS) for worker, pace in enumerate(paces)}


@pytest.mark.parametrize(
    ("paces", "slow"),
    [
        (steady(1.0, 1.0, 1.0, 3.0), {3: 3.0}),
        (steady(1.0, 2.0), {1: 2.0}),
        (steady(1.0, 1.0, 2.0, 2.0, 1.0, 1.0), {2: 2.0, 3: 2.0}),
        (steady(1.0, 1.4, 1.2), {}),
        (steady(5.0), {}),
        (steady(0.0, 0.0, 1.0), {}),
        ({}, {}),
    ],
)
def test_who_is_slow(paces: dict[int, deque[float]], slow: dict[int, float]) -> None:
    assert slowness(paces) == slow


def test_one_slow_moment_is_an_accident() -> None:
    paces = steady(1.0, 1.0, 9.0)
    paces[2][2] = 1.0
    assert slowness(paces) == {}


def test_who_has_only_begun_is_not_judged() -> None:
    paces = steady(1.0, 1.0)
    assert slowness({**paces, 2: deque([9.0] * (REPORTS - 1))}) == {}


def test_a_team_knows_its_slow_worker() -> None:
    team = Team(attempt=1, trainees={worker: Trainee(worker) for worker in range(2)})
    for worker, trainee in team.trainees.items():
        trainee.paces.extend([1.0 + 2 * worker] * (REPORTS + 1))
    assert team.slow() == {1: 3.0}
