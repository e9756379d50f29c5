"""When a running job will finish, and the error of that time."""

import random

import pytest

from rota.core.estimation.remaining_time import finish
from tests.support.builders import Lab, cluster, job


def running(epochs: float = 90.0, gpus: int = 1) -> Lab:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus=gpus, epochs=epochs))
    return lab


def go_on(lab: Lab, *times: float) -> None:
    for seconds in times:
        lab.wait(seconds)
        lab.progress("a", lab.job("a").epochs_done + 1, seconds)


def test_half_of_a_steady_job_predicts_its_finish_within_ten_percent() -> None:
    """Epochs of 100 s, give or take 15 %, whatever the seed."""
    for seed in range(50):
        draw = random.Random(seed)
        times = [draw.uniform(85.0, 115.0) for _ in range(90)]
        lab = running()
        go_on(lab, *times[:45])
        expected = finish(lab.job("a"), lab.now)
        assert expected is not None
        assert expected.remaining_s == pytest.approx(sum(times[45:]), rel=0.1), seed
        assert abs(expected.at_s - sum(times)) < 4 * expected.error_s, seed


def test_the_finish_is_right_three_epochs_after_a_slow_down() -> None:
    lab = running()
    go_on(lab, *[100.0] * 45, *[250.0] * 3)
    expected = finish(lab.job("a"), lab.now)
    assert expected is not None
    assert expected.remaining_s == pytest.approx(42 * 250.0, rel=0.1)


def test_the_current_epoch_counts_in_part() -> None:
    lab = running(epochs=10.0)
    go_on(lab, 100.0, 100.0)
    lab.wait(50.0)
    carried_on = finish(lab.job("a"), lab.now)
    heard = finish(lab.job("a"), lab.now, epochs_done=2.8)
    assert carried_on is not None
    assert heard is not None
    assert (carried_on.at_s, carried_on.remaining_s) == (1000.0, 750.0)
    assert heard.remaining_s == pytest.approx(720.0)


def test_the_finish_uses_the_current_size() -> None:
    lab = running(epochs=10.0, gpus=2)
    go_on(lab, 60.0)
    expected = finish(lab.job("a"), lab.now)
    assert expected is not None
    assert expected.remaining_s == pytest.approx(540.0)


def test_the_programs_number_of_epochs_counts() -> None:
    lab = running(epochs=90.0)
    lab.progress("a", 1.0, 100.0, epochs_total=3.0)
    expected = finish(lab.job("a"), lab.now)
    assert expected is not None
    assert expected.remaining_s == 200.0


def test_the_error_shrinks_with_measurements_and_progress() -> None:
    lab = running()
    errors: list[float] = []
    for _ in range(5):
        go_on(lab, 98.0, 102.0)
        expected = finish(lab.job("a"), lab.now)
        assert expected is not None
        errors.append(expected.error_s)
    assert errors == sorted(errors, reverse=True)


def test_the_error_of_an_overdue_job_is_its_delay() -> None:
    lab = running(epochs=2.0)
    go_on(lab, 100.0)
    lab.wait(500.0)
    expected = finish(lab.job("a"), lab.now)
    assert expected is not None
    assert (expected.at_s, expected.error_s) == (600.0, 400.0)


def test_a_waiting_or_unknown_job_has_no_finish() -> None:
    lab = running()
    assert finish(lab.job("a"), lab.now) is None
    go_on(lab, 100.0)
    lab.hold("a")
    assert finish(lab.job("a"), lab.now) is None
