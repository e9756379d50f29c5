"""Speeds for each size: measured and fitted values, errors and origins."""

from __future__ import annotations

import pytest

from rota.core.estimation.speed_model import ESTIMATE_ERROR, PRIOR_ERROR, MeasuredSize
from rota.core.model.job import Estimate, Job, JobId
from rota.daemon.jobs.profile_view import MAX_FITTED, size_figures, sizes_seen
from rota.store.records import Attempt, SampleRecord, Worker
from rota.wire.training import CATEGORY, ESTIMATE, FITTED, HERE, MEASURED, PRIOR, SizeFigure
from tests.support.builders import Lab, cluster, job, slots

ONE, TWO = MeasuredSize(1, crosses=False), MeasuredSize(2, crosses=False)


def trained(*epochs_s: tuple[str, int, float], category: str = "") -> Lab:
    """Jobs that ran one epoch each: name, workers, seconds."""
    lab = Lab(cluster("1x4"))
    for name, workers, seconds in epochs_s:
        lab.run(job(name, f"{workers}..4", requested_workers=workers, category=category))
        lab.progress(name, 1, seconds)
        lab.cancel(name)
        lab.exited(name, 143)
    return lab


def waiting(lab: Lab, **more: object) -> Job:
    lab.submit(job("new", "1..4", **more))
    return lab.job("new")


def by_size(figures: list[SizeFigure], kind: str) -> dict[int, SizeFigure]:
    return {each.gpus: each for each in figures if each.kind == kind}


def test_without_measurements_the_prior_is_shown():
    figures = size_figures(waiting(Lab()), frozenset())
    assert [(each.gpus, each.kind, each.origin) for each in figures] == [
        (n, FITTED, PRIOR) for n in (1, 2, 3, 4)
    ]
    assert {each.epoch_s for each in figures} == {None}
    assert [each.speedup_error for each in figures] == [0.0, *[PRIOR_ERROR] * 3]


def test_an_estimate_has_its_own_origin():
    found = by_size(size_figures(waiting(Lab(), estimate=Estimate(1000.0)), frozenset()), FITTED)
    assert found[1].epoch_s == 100.0
    assert {each.origin for each in found.values()} == {ESTIMATE}
    assert found[2].epoch_error == ESTIMATE_ERROR


def test_one_measured_size_keeps_the_assumed_scaling():
    lab = trained(("old", 1, 60.0), category="bert")
    found = size_figures(waiting(lab, category="bert"), frozenset())
    measured, fitted = by_size(found, MEASURED), by_size(found, FITTED)
    assert (measured[1].origin, measured[1].count, measured[1].epoch_s) == (CATEGORY, 1, 60.0)
    assert [fitted[n].origin for n in (1, 2, 3)] == [CATEGORY, PRIOR, PRIOR]
    assert fitted[2].epoch_error > PRIOR_ERROR
    assert fitted[1].epoch_error == measured[1].epoch_error


def test_two_measured_sizes_make_a_fit():
    lab = trained(("one", 1, 60.0), ("two", 2, 36.0), category="bert")
    found = size_figures(waiting(lab, category="bert"), frozenset({TWO}))
    measured, fitted = by_size(found, MEASURED), by_size(found, FITTED)
    assert (measured[1].origin, measured[2].origin) == (CATEGORY, HERE)
    assert measured[2].speedup == pytest.approx(60 / 36)
    assert measured[2].speedup_error == pytest.approx((0.1**2 * 2) ** 0.5, abs=1e-4)
    assert fitted[4].origin == HERE
    assert fitted[4].epoch_s is not None
    assert 9.0 < fitted[4].epoch_s < 36.0


def test_a_job_without_a_category_has_only_own_measurements():
    lab = Lab(cluster("1x4"))
    lab.run(job("a", 1))
    lab.progress("a", 1, 60.0)
    (measured, fitted) = size_figures(lab.job("a"), frozenset())
    assert (measured.origin, fitted.origin) == (HERE, HERE)


def test_sizes_at_which_a_job_was_measured():
    job_id = JobId("a")
    attempts = [
        Attempt(job_id, 1, 0.0, workers=_workers("1:0")),
        Attempt(job_id, 2, 0.0, workers=_workers("1:0", "2:0")),
    ]
    samples = [SampleRecord(job_id, n, 0.0, worker=0, workers=n, epochs_done=1.0) for n in (1, 2)]
    assert sizes_seen(samples, attempts) == {ONE, MeasuredSize(2, crosses=True)}


def _workers(*places: str) -> tuple[Worker, ...]:
    return tuple(Worker(JobId("a"), 1, n, 0, slot) for n, slot in enumerate(slots(*places)))


def test_the_figures_of_a_huge_range_are_bounded():
    lab = Lab()
    lab.submit(job("a", "1..100000"))
    assert len(size_figures(lab.job("a"), frozenset())) == MAX_FITTED
