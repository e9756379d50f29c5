"""A fit from few measurements stays plausible: no size takes no time, and none is useless."""

from dataclasses import replace
from itertools import combinations, product

import pytest

from rota.core.estimation.speed_model import (
    PRIOR,
    PRIOR_SPEEDUPS,
    MeasuredSize,
    SpeedModel,
    estimated,
    learn,
)

TRANSFORMER = (0.0, 1.0, 1.657, 2.148, 2.521)
ONE_S = 65.5

Measured = tuple[tuple[int, bool], ...]

PAIRS: list[Measured] = [
    tuple(zip(sizes, crossings, strict=True))
    for sizes in combinations(range(1, 5), 2)
    for crossings in product((False, True), repeat=2)
]


def learnt(model: SpeedModel, measured: Measured) -> SpeedModel:
    for workers, crosses in measured:
        epoch_s = ONE_S / TRANSFORMER[workers]
        model = learn(model, MeasuredSize(workers, crosses), epoch_s=epoch_s, max_workers=4)
    return model


@pytest.mark.parametrize("measured", PAIRS)
def test_two_sizes_keep_the_shape_of_a_right_estimate(measured: Measured) -> None:
    """Two workers across nodes and three on one used to be explained by a job that takes no time
    on one worker, and so speeds up nowhere: AFS-L then let all of its category wait."""
    model = learnt(estimated(ONE_S, speedups=TRANSFORMER), measured)
    assert model.one_s == pytest.approx(ONE_S, rel=0.03)
    assert model.speedups(4)[1:] == pytest.approx(TRANSFORMER[1:], rel=0.03)


@pytest.mark.parametrize("measured", PAIRS)
def test_without_an_estimate_it_is_not_degenerate(
    measured: Measured,
) -> None:
    model = learnt(PRIOR, measured)
    assert model.one_s == pytest.approx(ONE_S, rel=0.35)
    assert all(0 < model.speedup(n) <= 1.1 * n for n in range(1, 5))


@pytest.mark.parametrize("measured", PAIRS)
def test_the_prior_is_not_stored_with_each_job(measured: Measured) -> None:
    """The prior has hundreds of sizes, and a cluster stores each job as text."""
    spelled_out = replace(learnt(PRIOR, measured[:1]), assumed=PRIOR_SPEEDUPS)
    model = learnt(PRIOR, measured)
    assert model.assumed == ()
    assert model.speedups(8) == learnt(spelled_out, measured[1:]).speedups(8)
