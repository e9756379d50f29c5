"""What measured times are worth: all of them while they agree, the newest when they changed."""

import pytest

from rota.core.samples import Sample, first


def sample(*times: float) -> Sample:
    found = first(times[0])
    for each in times[1:]:
        found = found.with_time(each)
    return found


def test_times_that_agree_all_count() -> None:
    found = sample(10.0, 10.2, 9.8, 10.1, 9.9, 10.0, 10.0)
    assert (found.count, found.mean_s) == (7, pytest.approx(10.0))


def test_one_odd_epoch_is_not_a_change() -> None:
    assert sample(*[10.0] * 20, 25.0).count == 21
    assert sample(*[10.0] * 20, 25.0, 10.0).count == 22


def test_two_in_a_row_are() -> None:
    found = sample(*[10.0] * 50, 25.0, 25.0)
    assert (found.count, found.mean_s) == (2, 25.0)


def test_a_slow_first_epoch_is_forgotten_after_two_more() -> None:
    assert sample(30.0, 10.0, 10.0).mean_s == 10.0


def test_a_pace_that_creeps_is_followed() -> None:
    found = sample(*(10.0 * 1.01**n for n in range(60)))
    assert found.mean_s == pytest.approx(10 * 1.01**59, rel=0.1)


def test_a_change_smaller_than_the_noise_is_none() -> None:
    noisy = [8.0, 12.0, 9.0, 11.0, 10.0, 7.0, 13.0, 10.0]
    assert sample(*noisy, 11.0, 11.0, 11.0).count == 11


def test_after_a_change_the_error_is_that_of_a_few_times() -> None:
    steady = sample(*[10.0] * 50)
    changed = sample(*[10.0] * 50, 25.0, 25.0)
    assert steady.error < 0.005 < 0.04 < changed.error
