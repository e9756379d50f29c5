"""Forecasts of start and finish times by running the kernel forward."""

import math
from collections.abc import Callable
from copy import deepcopy

import pytest

from rota.core.estimation.forecast import Horizon, JobForecast, Situation, forecast
from rota.core.estimation.speed_model import ESTIMATE_ERROR, PRIOR_ERROR
from rota.core.model.job import Estimate, JobId, JobSpec
from rota.engines.virtual.forecast import forecast_engine
from rota.engines.virtual.run import Delays
from tests.support.builders import QUICK, Lab, cluster, job, live_job


def expected(lab: Lab, until_s: float = math.inf) -> dict[str, JobForecast]:
    kernel = lab.kernel
    situation = Situation(
        jobs=tuple(kernel.jobs.values()),
        nodes=tuple(kernel.nodes.values()),
        rules=kernel.rules,
        outcomes=lab.store.load().outcomes,
    )
    found = forecast(
        situation, lab.policy, engine_of=forecast_engine, now=lab.now, horizon=Horizon(until_s)
    )
    return {str(job_id): each for job_id, each in found.items()}


def hour(workers: int = 1) -> Estimate:
    return Estimate(3600.0, workers, speedups=(0.0, 1.0, 2.0, 3.0, 4.0))


def test_jobs_start_one_after_the_other() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(*(job(name, estimate=hour()) for name in "abc"))
    lab.wait(100)
    assert expected(lab) == {
        "a": JobForecast(100, 3700, ESTIMATE_ERROR),
        "b": JobForecast(3700, 7300, ESTIMATE_ERROR),
        "c": JobForecast(7300, 10900, ESTIMATE_ERROR),
    }


def test_done_work_is_not_repeated_in_a_forecast() -> None:
    """Neither by a job that runs, which is taken to have gone on since its last report, nor by
    one that has been stopped."""
    lab = Lab(cluster("1x2"))
    lab.run(job("a", estimate=hour()), job("b", estimate=hour()))
    lab.wait(1800)
    lab.progress("a", 5)
    lab.progress("b", 5)
    lab.hold("b")
    lab.exited("b", 143)
    lab.release("b")
    lab.wait(360)
    found = expected(lab)
    assert (found["a"].start_s, found["b"].start_s) == (0, 2160)
    assert found["a"].finish_s == pytest.approx(3600)
    assert found["b"].finish_s == pytest.approx(3960)


@pytest.mark.parametrize("make", [job, live_job])
def test_jobs_grow_when_others_finish(make: Callable[..., JobSpec]) -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(make("a", gpus="2..4", estimate=hour(2)), make("b", gpus=2, estimate=hour(2)))
    lab.progress("b", 5)
    found = expected(lab)
    assert found["b"].finish_s == pytest.approx(1800)
    assert found["a"].finish_s == pytest.approx(1800 + 900)


def test_measured_times_count_more_than_estimates() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a", estimate=hour()))
    lab.wait(100)
    lab.progress("a", 1, epoch_s=100.0)
    found = expected(lab)["a"]
    assert (found.finish_s, found.error) == (pytest.approx(1000), 0.1)


def test_waiting_for_an_uncertain_job_is_uncertain() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("b", estimate=hour()))
    lab.progress("b", 1, epoch_s=360.0)
    lab.submit(job("a", estimate=hour(), priority=0))
    found = expected(lab)
    assert (found["b"].error, found["a"].error) == (0.1, ESTIMATE_ERROR)


def test_unpredictable_times_are_infinite() -> None:
    """A job of unknown length, a job behind it, and a held job."""
    lab = Lab(cluster("1x1"))
    lab.run(job("a"))
    lab.submit(job("b", estimate=hour()))
    lab.submit(job("c", estimate=hour()), is_held=True)
    assert expected(lab) == {
        "a": JobForecast(0, math.inf, PRIOR_ERROR),
        "b": JobForecast(math.inf, math.inf, ESTIMATE_ERROR),
        "c": JobForecast(math.inf, math.inf, ESTIMATE_ERROR),
    }


def test_a_forecast_ends_at_its_time_horizon() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a", estimate=hour()), job("b", estimate=hour()))
    found = expected(lab, until_s=5000)
    assert found["a"].finish_s == 3600
    assert (found["b"].start_s, found["b"].finish_s) == (3600, math.inf)


def test_dependencies_and_time_limits_count() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("z", estimate=hour()))
    lab.exited("z")
    lab.submit(
        job("a", estimate=hour(), after=(JobId("z"),)),
        job("b", estimate=hour(), after=(JobId("a"),), time_limit_s=600.0),
    )
    found = expected(lab)
    assert found["a"].finish_s == 3600
    assert (found["b"].start_s, found["b"].finish_s) == (3600, 4200)


def test_slow_starts_count_if_the_engine_has_them() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a", estimate=hour()))
    situation = Situation(
        tuple(lab.kernel.jobs.values()), tuple(lab.kernel.nodes.values()), lab.kernel.rules
    )
    found = forecast(
        situation,
        lab.policy,
        engine_of=lambda jobs, now: forecast_engine(jobs, now, delays=Delays(start_s=30.0)),
        now=0.0,
    )
    assert found[JobId("a")].finish_s == 3630


def test_a_forecast_does_not_change_the_kernel() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4", estimate=hour()))
    lab.submit(job("b", gpus=2, estimate=hour()))
    lab.round()
    before = deepcopy((dict(lab.kernel.jobs), dict(lab.kernel.nodes)))
    booked, view = lab.kernel.ledger.booked(), lab.decide()
    expected(lab)
    assert (dict(lab.kernel.jobs), dict(lab.kernel.nodes)) == before
    assert lab.kernel.ledger.booked() == booked
    assert lab.decide() == view


def test_a_forecast_ends_after_its_rounds() -> None:
    """Only the next jobs in the queue have a forecast."""
    lab = Lab(cluster("1x1"))
    lab.submit(*(job(name, estimate=hour()) for name in "abcdef"))
    situation = Situation(tuple(lab.kernel.jobs.values()), tuple(lab.kernel.nodes.values()), QUICK)
    found = forecast(
        situation, lab.policy, engine_of=forecast_engine, now=0.0, horizon=Horizon(max_rounds=3)
    )
    ends = [math.isfinite(each.finish_s) for each in found.values()]
    assert ends == sorted(ends, reverse=True)
    assert ends[0]
    assert not ends[-1]
