"""Epoch statistics: all times count while they agree, only the newest after a change."""

import pytest

from rota.core.estimation.epoch_samples import EpochStats, stats_of_first_epoch


def sample(*times: float) -> EpochStats:
    found = stats_of_first_epoch(times[0])
    for each in times[1:]:
        found = found.with_time(each)
    return found


def test_all_agreeing_times_count() -> None:
    found = sample(10.0, 10.2, 9.8, 10.1, 9.9, 10.0, 10.0)
    assert (found.count, found.mean_s) == (7, pytest.approx(10.0))


def test_one_outlier_is_not_a_change() -> None:
    assert sample(*[10.0] * 20, 25.0).count == 21
    assert sample(*[10.0] * 20, 25.0, 10.0).count == 22


def test_two_outliers_in_a_row_are_a_change() -> None:
    found = sample(*[10.0] * 50, 25.0, 25.0)
    assert (found.count, found.mean_s) == (2, 25.0)


def test_a_slow_first_epoch_is_forgotten_after_two_more() -> None:
    assert sample(30.0, 10.0, 10.0).mean_s == 10.0


def test_a_slowly_changing_speed_is_followed() -> None:
    found = sample(*(10.0 * 1.01**n for n in range(60)))
    assert found.mean_s == pytest.approx(10 * 1.01**59, rel=0.1)


def test_a_change_within_the_noise_is_ignored() -> None:
    noisy = [8.0, 12.0, 9.0, 11.0, 10.0, 7.0, 13.0, 10.0]
    assert sample(*noisy, 11.0, 11.0, 11.0).count == 11


def test_after_a_change_the_error_is_that_of_a_few_times() -> None:
    steady = sample(*[10.0] * 50)
    changed = sample(*[10.0] * 50, 25.0, 25.0)
    assert steady.error < 0.005 < 0.04 < changed.error
