"""Invariants of every speed model: finite, never negative, and exact where measured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.estimation.speed_model import PRIOR, MeasuredSize, SpeedModel, estimated, learn

TIMES = st.floats(1e-3, 1e6)
SIZES = st.builds(MeasuredSize, workers=st.integers(1, 40), crosses=st.booleans())
TABLES = st.lists(st.floats(1e-3, 50), max_size=20).map(lambda rest: (0.0, 1.0, *rest))


def learnt(times: list[tuple[MeasuredSize, float]], model: SpeedModel, most: int) -> SpeedModel:
    for size, epoch_s in times:
        model = learn(model, size, epoch_s=epoch_s, max_workers=most)
    return model


@given(
    times=st.lists(st.tuples(SIZES, TIMES), max_size=8),
    table=TABLES,
    epoch_s=TIMES,
    most=st.integers(1, 40),
)
def test_speedups_are_finite_and_none_is_negative(
    times: list[tuple[MeasuredSize, float]], table: tuple[float, ...], epoch_s: float, most: int
) -> None:
    for first in (PRIOR, estimated(epoch_s, speedups=table)):
        model = learnt(times, first, most)
        speedups = model.speedups(most)
        assert all(math.isfinite(s) and s >= 0 for s in speedups)
        assert speedups[0] == 0.0
        assert 0 <= model.error < math.inf
        if times:
            assert 0 < model.one_s < math.inf
            assert len(speedups) == most + 1
            assert all(s > 0 for s in speedups[1:])


@given(
    times=st.lists(st.tuples(SIZES, st.floats(0.98, 1.02)), min_size=1, max_size=20),
    epoch_s=TIMES,
)
def test_agreeing_times_give_their_mean(
    times: list[tuple[MeasuredSize, float]], epoch_s: float
) -> None:
    model = learnt([(size, part * epoch_s) for size, part in times], PRIOR, 40)
    for workers in {size.workers for size, _ in times}:
        parts = [part for size, part in times if size.workers == workers]
        assert model.epoch_s(workers) == pytest.approx(epoch_s * sum(parts) / len(parts))


@given(times=st.lists(st.tuples(SIZES, TIMES), min_size=1, max_size=20))
def test_a_measured_size_lies_within_its_times(
    times: list[tuple[MeasuredSize, float]],
) -> None:
    model = learnt(times, PRIOR, 40)
    for workers in {size.workers for size, _ in times}:
        measured = [epoch_s for size, epoch_s in times if size.workers == workers]
        assert min(measured) * 0.999 <= model.epoch_s(workers) <= max(measured) * 1.001


@given(
    before=st.lists(st.floats(0.98, 1.02), min_size=1, max_size=60),
    factor=st.floats(0.1, 10).filter(lambda factor: abs(factor - 1) > 0.2),
    after=st.lists(st.floats(0.98, 1.02), min_size=3, max_size=10),
    size=SIZES,
)
def test_a_change_of_speed_is_detected_within_three_epochs(
    before: list[float], factor: float, after: list[float], size: MeasuredSize
) -> None:
    times = [100 * part for part in before] + [100 * factor * part for part in after]
    model = learnt([(size, each) for each in times], PRIOR, 40)
    assert model.epoch_s(size.workers) == pytest.approx(100 * factor, rel=0.1)


@given(
    work_s=st.floats(1, 1e4),
    overhead=st.floats(0, 1),
    crossing=st.floats(0, 1),
    second=st.integers(2, 8),
)
def test_the_fit_is_exact_on_exact_data(
    work_s: float, overhead: float, crossing: float, second: int
) -> None:
    """Measured on one worker, on some more, and across nodes: all other sizes follow."""

    def epoch_s(workers: int, *, crosses: bool) -> float:
        shared = overhead * work_s * (workers - 1) / workers
        return work_s / workers + shared + crossing * work_s * crosses

    sizes = [
        MeasuredSize(1, crosses=False),
        MeasuredSize(second, crosses=False),
        MeasuredSize(16, crosses=True),
    ]
    times = [(size, epoch_s(size.workers, crosses=size.crosses)) for size in sizes]
    model = learnt(times, PRIOR, 32)
    for workers in range(1, 33):
        expected = epoch_s(workers, crosses=workers >= 16)
        assert model.epoch_s(workers) == pytest.approx(expected, rel=0.01)
