"""The speed model of a job: measured, else fitted, else estimated, else a prior."""

import itertools
import math

import pytest

from rota.core.estimation.speed_model import (
    PRIOR,
    MeasuredSize,
    SpeedModel,
    estimated,
    learn,
)


def on_one_node(workers: int) -> MeasuredSize:
    return MeasuredSize(workers, crosses=False)


def across(workers: int) -> MeasuredSize:
    return MeasuredSize(workers, crosses=True)


def learnt(
    times: dict[MeasuredSize, float], model: SpeedModel = PRIOR, most: int = 8
) -> SpeedModel:
    for size, epoch_s in times.items():
        model = learn(model, size, epoch_s=epoch_s, max_workers=most)
    return model


def test_the_prior_is_concave_and_of_unknown_length() -> None:
    table = PRIOR.speedups(512)
    gains = [after - before for before, after in itertools.pairwise(table)]
    assert table[:2] == (0.0, 1.0)
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
    assert PRIOR.epoch_s(4) == math.inf


def test_an_estimate_comes_from_the_user() -> None:
    model = estimated(100.0, speedups=(0.0, 1.0, 1.5))
    assert (model.epoch_s(1), model.epoch_s(2)) == (100.0, pytest.approx(66.7, abs=0.1))


def test_an_estimate_may_be_for_several_workers() -> None:
    assert estimated(100.0, workers=2, speedups=(0.0, 1.0, 1.5)).epoch_s(1) == 150.0


def test_an_estimate_for_a_size_that_its_table_lacks_is_taken_for_one_worker() -> None:
    assert estimated(100.0, workers=9, speedups=(0.0, 1.0)).epoch_s(1) == 100.0


def test_a_size_beyond_the_table_speeds_nothing_up() -> None:
    model = estimated(100.0, speedups=(0.0, 1.0, 1.5))
    assert model.speedup(3) == 0.0
    assert model.epoch_s(3) == math.inf
    assert model.epoch_s(0) == math.inf


def test_a_measurement_overrides_the_estimate() -> None:
    model = learnt({on_one_node(1): 80.0, on_one_node(2): 70.0}, estimated(100.0))
    assert model.epoch_s(1) == pytest.approx(80.0)
    assert model.epoch_s(2) == pytest.approx(70.0)


def test_the_mean_of_all_measurements_at_a_size_counts() -> None:
    model = learnt({on_one_node(2): 60.0})
    model = learn(model, on_one_node(2), epoch_s=80.0, max_workers=8)
    assert model.epoch_s(2) == pytest.approx(70.0)


def test_with_one_size_measured_the_estimate_keeps_its_shape() -> None:
    model = learnt({on_one_node(2): 40.0}, estimated(100.0, speedups=(0.0, 1.0, 2.0, 3.0)), most=3)
    assert [model.epoch_s(n) for n in (1, 2, 3)] == pytest.approx([80.0, 40.0, 80 / 3])


def test_with_two_sizes_measured_the_others_are_fitted() -> None:
    """100/n + 10 (n-1)/n."""
    model = learnt({on_one_node(1): 100.0, on_one_node(2): 55.0})
    assert model.epoch_s(4) == pytest.approx(32.5, rel=0.001)


def test_the_cost_of_crossing_nodes_is_fitted_separately() -> None:
    """100/n, and 7 more from four workers on, which were only seen across nodes."""
    times = {on_one_node(1): 100.0, on_one_node(2): 50.0, across(4): 32.0}
    model = learnt(times)
    assert model.epoch_s(3) == pytest.approx(100 / 3, rel=0.001)
    assert model.epoch_s(5) == pytest.approx(27.0, rel=0.001)


def test_no_term_is_negative_so_no_size_looks_better_than_perfect() -> None:
    """Faster than linear between one and two: not carried on."""
    model = learnt({on_one_node(1): 100.0, on_one_node(2): 30.0})
    assert model.speedup(2) == pytest.approx(100 / 30)
    assert model.speedup(8) <= 8 * 100 / 30


def test_fewer_workers_than_were_measured_never_look_faster() -> None:
    """All overhead: the fit alone would have a lone worker done at once."""
    model = learnt({on_one_node(2): 10.0, on_one_node(4): 15.0})
    assert model.epoch_s(1) == pytest.approx(10.0)
    assert all(model.speedup(n) > 0 for n in range(1, 10))


def test_an_unmeasured_size_never_looks_better_than_the_fit_allows() -> None:
    """The assumed shape says otherwise, but is not asked where two sizes were measured."""
    model = learnt({on_one_node(2): 70.0, on_one_node(4): 55.0}, estimated(100.0), most=32)
    assert model.epoch_s(32) == pytest.approx(100 / 32 + 40 * 31 / 32, rel=0.01)


def test_the_error_shrinks_with_measurements() -> None:
    model, errors = PRIOR, [PRIOR.error]
    for epoch_s in (10.0, 10.1, 9.9, 10.05, 9.95, 10.0):
        model = learn(model, on_one_node(1), epoch_s=epoch_s, max_workers=4)
        errors.append(model.error)
    assert errors == sorted(errors, reverse=True)
    assert estimated(100.0).error < PRIOR.error
    assert errors[1] < estimated(100.0).error


@pytest.mark.parametrize("epoch_s", [0.0, -1.0, math.inf, math.nan])
def test_invalid_measurements_are_ignored(epoch_s: float) -> None:
    model = learnt({on_one_node(1): 100.0})
    assert learn(model, on_one_node(1), epoch_s=epoch_s, max_workers=8) is model


def test_a_measurement_without_workers_is_ignored() -> None:
    assert learn(PRIOR, on_one_node(0), epoch_s=1.0, max_workers=8) is PRIOR


def test_a_measured_model_covers_every_size() -> None:
    small = learnt({on_one_node(1): 100.0, on_one_node(2): 55.0}, most=2)
    assert small.epoch_s(8) == pytest.approx(100 / 8 + 10 * 7 / 8, rel=0.001)
    assert small.speedups(8)[8] == small.speedup(8)


def test_with_one_size_measured_sizes_beyond_the_assumed_shape_bring_no_gain() -> None:
    model = learnt({on_one_node(2): 50.0}, estimated(100.0, speedups=(0.0, 1.0, 2.0)), most=9)
    assert model.epoch_s(9) == model.epoch_s(2)
