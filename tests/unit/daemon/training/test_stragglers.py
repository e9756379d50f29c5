"""Detection of stragglers."""

from collections import deque

import pytest

from rota.daemon.training.stragglers import REPORTS, slowness
from rota.daemon.training.worker_progress import AttemptProgress, WorkerProgress


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
def test_stragglers(paces: dict[int, deque[float]], slow: dict[int, float]) -> None:
    assert slowness(paces) == slow


def test_one_slow_report_makes_no_straggler() -> None:
    paces = steady(1.0, 1.0, 9.0)
    paces[2][2] = 1.0
    assert slowness(paces) == {}


def test_too_few_reports_make_no_straggler() -> None:
    paces = steady(1.0, 1.0)
    assert slowness({**paces, 2: deque([9.0] * (REPORTS - 1))}) == {}


def test_attempt_finds_its_straggler() -> None:
    attempt_progress = AttemptProgress(
        attempt=1, by_worker={worker: WorkerProgress(worker) for worker in range(2)}
    )
    for worker, worker_progress in attempt_progress.by_worker.items():
        worker_progress.paces.extend([1.0 + 2 * worker] * (REPORTS + 1))
    assert attempt_progress.slow() == {1: 3.0}
