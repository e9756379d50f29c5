"""Progress and expected end of a job."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rota.core.estimation.forecast import JobForecast
from rota.core.estimation.speed_model import ESTIMATE_ERROR
from rota.core.model.events import ProgressReported
from rota.core.model.job import Estimate, JobId
from rota.daemon.jobs.eta import LONGEST_ETA_S, JobEta, job_eta
from tests.support.builders import Lab, cluster, job

UNKNOWN = JobEta()


def lab(**more: Any) -> Lab:
    made = Lab(cluster("1x2"))
    made.run(job("a", **more))
    return made


def seen(lab: Lab, expected: JobForecast | None = None) -> JobEta:
    return job_eta(lab.job("a"), lab.now, expected=expected)


def test_a_job_without_reports_has_no_eta():
    assert seen(lab()) == UNKNOWN


def test_an_estimate_gives_an_end_but_no_progress():
    made = lab(estimate=Estimate(3600.0))
    made.wait(600)
    assert seen(made) == JobEta(None, 3000.0, 3600.0, ESTIMATE_ERROR)


def test_measured_epochs_replace_the_estimate():
    made = lab(estimate=Estimate(3600.0))
    made.wait(100)
    made.progress("a", 1, 100.0)
    found = seen(made)
    assert (found.progress, found.remaining_s, found.finish_s) == (0.1, 900.0, 1000.0)
    assert found.finish_error == pytest.approx(0.1, rel=0.1)


def test_an_overdue_job_is_expected_to_double_its_delay():
    made = lab(estimate=Estimate(3600.0))
    made.wait(4000)
    assert seen(made) == JobEta(None, 400.0, 4400.0, 1.0)


def test_the_end_depends_on_the_current_size():
    made = Lab(cluster("1x2"))
    made.run(job("a", 2, estimate=Estimate(1000.0, 1, speedups=(0.0, 1.0, 2.0))))
    assert seen(made).remaining_s == 500.0


def test_a_job_beyond_its_number_of_epochs_has_no_progress():
    made = lab(epochs=1.0)
    made.progress("a", 3.5)
    assert seen(made).progress is None


def test_a_job_with_an_unknown_number_of_epochs_has_neither_progress_nor_end():
    made = lab(epochs=1.0, estimate=Estimate(3600.0))
    made.progress("a", 3.0, 100.0, epochs_total=math.inf)
    assert seen(made) == UNKNOWN


def test_the_number_of_epochs_of_the_program_takes_precedence():
    made = lab(epochs=1.0)
    made.tell(ProgressReported(JobId("a"), 1, 3.0, 10.0, epochs_total=12.0))
    assert seen(made).progress == 0.25


def test_a_queued_job_ends_at_the_time_of_the_forecast():
    made = Lab(cluster("1x1"))
    made.submit(job("a", estimate=Estimate(3600.0)))
    assert seen(made) == UNKNOWN
    assert seen(made, JobForecast(100.0, 5000.0, 0.4)) == JobEta(None, 5000.0, 5000.0, 0.4)
    assert seen(made, JobForecast()) == UNKNOWN


@pytest.mark.parametrize("seconds", [LONGEST_ETA_S * 2, 1e300, math.inf])
def test_an_end_too_far_away_is_not_shown(seconds: float):
    assert seen(lab(estimate=Estimate(seconds))).finish_s is None


def test_a_stopped_job_keeps_its_progress_and_has_no_end():
    made = lab(estimate=Estimate(3600.0))
    made.wait(100)
    made.progress("a", 5, 20.0)
    made.hold("a")
    assert seen(made) == JobEta(0.5)
