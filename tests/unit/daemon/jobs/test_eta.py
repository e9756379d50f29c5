"""How far a job is and when it ends, as far as that can be told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rota.core.events import ProgressReported
from rota.core.forecast import Expected
from rota.core.model import Estimate, JobId
from rota.core.speed import ESTIMATE_ERROR
from rota.daemon.outlook import FAR_S, Outlook, outlook
from tests.builders import Lab, cluster, job

UNKNOWN = Outlook()


def lab(**more: Any) -> Lab:
    made = Lab(cluster("1x2"))
    made.run(job("a", **more))
    return made


def seen(lab: Lab, expected: Expected | None = None) -> Outlook:
    return outlook(lab.job("a"), lab.now, expected=expected)


def test_nothing_is_said_of_a_job_that_says_nothing():
    assert seen(lab()) == UNKNOWN


def test_an_estimate_is_an_end_but_no_progress():
    made = lab(estimate=Estimate(3600.0))
    made.wait(600)
    assert seen(made) == Outlook(None, 3000.0, 3600.0, ESTIMATE_ERROR)


def test_measured_epochs_take_the_place_of_the_estimate():
    made = lab(estimate=Estimate(3600.0))
    made.wait(100)
    made.progress("a", 1, 100.0)
    found = seen(made)
    assert (found.progress, found.remaining_s, found.finish_s) == (0.1, 900.0, 1000.0)
    assert found.finish_error == pytest.approx(0.1, rel=0.1)


def test_a_job_that_is_overdue_may_take_as_long_again_as_it_is_late():
    made = lab(estimate=Estimate(3600.0))
    made.wait(4000)
    assert seen(made) == Outlook(None, 400.0, 4400.0, 1.0)


def test_the_end_is_of_the_size_that_it_runs_at():
    made = Lab(cluster("1x2"))
    made.run(job("a", 2, estimate=Estimate(1000.0, 1, speedups=(0.0, 1.0, 2.0))))
    assert seen(made).remaining_s == 500.0


def test_a_job_that_counts_further_than_it_said_has_no_progress():
    made = lab(epochs=1.0)
    made.progress("a", 3.5)
    assert seen(made).progress is None


def test_a_job_that_never_says_how_many_epochs_it_takes_has_neither_progress_nor_end():
    made = lab(epochs=1.0, estimate=Estimate(3600.0))
    made.progress("a", 3.0, 100.0, epochs_total=math.inf)
    assert seen(made) == UNKNOWN


def test_what_the_program_says_of_its_length_counts():
    made = lab(epochs=1.0)
    made.tell(ProgressReported(JobId("a"), 1, 3.0, 10.0, epochs_total=12.0))
    assert seen(made).progress == 0.25


def test_a_job_that_waits_ends_when_the_forecast_says():
    made = Lab(cluster("1x1"))
    made.submit(job("a", estimate=Estimate(3600.0)))
    assert seen(made) == UNKNOWN
    assert seen(made, Expected(100.0, 5000.0, 0.4)) == Outlook(None, 5000.0, 5000.0, 0.4)
    assert seen(made, Expected()) == UNKNOWN


@pytest.mark.parametrize("seconds", [FAR_S * 2, 1e300, math.inf])
def test_an_end_that_is_too_far_away_is_none(seconds: float):
    assert seen(lab(estimate=Estimate(seconds))).finish_s is None


def test_a_stopped_job_keeps_its_progress_and_has_no_end():
    made = lab(estimate=Estimate(3600.0))
    made.wait(100)
    made.progress("a", 5, 20.0)
    made.hold("a")
    assert seen(made) == Outlook(0.5)
