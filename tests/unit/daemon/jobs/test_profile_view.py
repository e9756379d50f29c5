"""Measurements of a job, and the hint for its owner."""

from __future__ import annotations

import math

from rota.core.model.events import ProgressReported
from rota.core.model.job import Estimate, JobId
from rota.daemon.jobs.profile_view import LiveWorkers, hint, metrics_of, profile_of, worker_figures
from rota.daemon.training.worker_progress import AttemptProgress, WorkerProgress
from rota.store.interface import Batch
from rota.store.records import SampleRecord
from rota.wire.training import Handling, WorkerFigure
from tests.support.builders import Lab, cluster, job

HOUR = Estimate(3600.0)
NOBODY = LiveWorkers()


def lab(**more: object) -> Lab:
    made = Lab(cluster("2x1"))
    made.run(job("a", 2, **more))
    return made


def told(
    lab: Lab, live: LiveWorkers = NOBODY, *, has_end: bool = True, is_crowded: bool = False
) -> str:
    return hint(lab.job("a"), live, has_end=has_end, is_crowded=is_crowded)


def test_a_job_without_reports_gets_a_hint():
    assert told(lab(), has_end=False).startswith("the run time is unknown: submit with")
    assert told(lab(), LiveWorkers([WorkerProgress(0)]), has_end=False) == (
        "the expected end is known after the first epoch"
    )
    assert told(lab(estimate=HOUR)) == ""


def test_the_hint_about_stragglers_comes_first():
    one, two = LiveWorkers(slow={3: 1.6}), LiveWorkers(slow={3: 1.6, 1: 2.0})
    assert told(lab(), one).startswith("worker 3 slowed down the others")
    assert told(lab(), two).startswith("workers 1, 3 slowed down the others")


def test_the_hint_warns_about_much_unsaved_work():
    made = lab(epochs=100.0)
    made.tell(ProgressReported(JobId("a"), 1, 5.0, 100.0, saved=0.0))
    assert told(made) == ""
    made.tell(ProgressReported(JobId("a"), 1, 7.0, 100.0, saved=0.0))
    assert told(made).startswith("a stop now would lose more than ten minutes")


def test_the_hint_names_the_missing_number_of_epochs():
    made = lab()
    made.progress("a", 5.0, 100.0, epochs_total=math.inf)
    assert told(made).endswith("but not their total number")
    assert profile_of(made.job("a"), made.store, live=NOBODY).epochs is None


def test_the_hint_says_why_a_queued_job_has_no_expected_end():
    made = Lab(cluster("1x1"))
    made.submit(job("a", estimate=HOUR))
    assert told(made) == ""
    assert told(made, has_end=False, is_crowded=True).endswith(
        "too many queued jobs for a forecast"
    )
    assert told(made, has_end=False).endswith("the run time of the jobs before it is unknown")


def test_worker_figures_have_node_and_slowness():
    live = LiveWorkers(
        [WorkerProgress(0, step_s=0.1), WorkerProgress(1, step_s=0.2, memory_bytes=7)], {1: 2.0}
    )
    assert worker_figures(lab().job("a"), live) == [
        WorkerFigure(0, "node-01", 0.1),
        WorkerFigure(1, "node-02", 0.2, memory_bytes=7, slowness=2.0),
    ]


def test_gpu_memory_of_the_driver_takes_precedence():
    made = lab(epochs=9.0)
    lead = WorkerProgress(0, epochs_done=1.0, gpu_memory_bytes=5, driver_gpu_bytes=7)
    attempt_progress = AttemptProgress(1, {0: lead})
    fact = attempt_progress.next_fact(made.job("a"), lead, now=0.0)
    sample = attempt_progress.sample(made.job("a"), lead, now=9.0)
    (figure,) = worker_figures(made.job("a"), LiveWorkers([lead]))
    assert fact is not None
    assert sample is not None
    assert {fact.memory_bytes, sample.gpu_memory_bytes, figure.gpu_memory_bytes} == {7}


def test_metrics_of_the_first_worker_take_precedence():
    live = LiveWorkers(
        [
            WorkerProgress(0, metrics={"loss": 1.0}),
            WorkerProgress(1, metrics={"loss": 9.0, "x": 2.0}),
        ]
    )
    assert metrics_of(live) == {"loss": 1.0, "x": 2.0}


def test_the_profile_of_an_ended_job_comes_from_its_samples():
    made = lab()
    found = profile_of(made.job("a"), made.store, live=LiveWorkers())
    assert (found.workers, found.metrics, found.steps, found.epochs) == ([], {}, [], None)
    made.tell(ProgressReported(JobId("a"), 1, 5.0, 100.0, epochs_total=20.0))
    samples = tuple(
        SampleRecord(
            JobId("a"), 1, float(n), worker=0, workers=2, epochs_done=n, metrics={"loss": 1.0 / n}
        )
        for n in (1, 2)
    )
    made.store.write(Batch(samples=samples)).result()
    found = profile_of(made.job("a"), made.store, live=LiveWorkers())
    assert [each.at_s for each in found.steps] == [1.0, 2.0]
    assert (found.metrics, found.workers) == ({"loss": 0.5}, [WorkerFigure(0)])
    assert (found.epochs, found.epochs_done) == (20.0, 5.0)


def test_the_start_time_of_the_program_takes_precedence():
    made = lab()
    lead = WorkerProgress(0, start_s=7.5, save_s=0.5, load_s=0.25)
    found = profile_of(made.job("a"), made.store, live=LiveWorkers([lead]))
    assert found.handling == Handling(start_s=7.5, save_s=0.5, load_s=0.25, stop_s=None)


def test_save_and_load_times_outlive_the_attempt():
    made = lab(epochs=9.0)
    lead = WorkerProgress(0, epochs_done=1.0, save_s=0.5, load_s=0.25)
    fact = AttemptProgress(1, {0: lead}).next_fact(made.job("a"), lead, now=0.0)
    assert fact is not None
    made.tell(fact)
    made.progress("a", 2.0)
    made.exited("a", 0)
    ended = made.store.job(JobId("a"))
    assert ended is not None
    found = profile_of(ended, made.store, live=NOBODY).handling
    assert (found.save_s, found.load_s) == (0.5, 0.25)


def test_the_start_time_is_known_without_reports():
    made = lab()
    assert profile_of(made.job("a"), made.store, live=LiveWorkers()).handling == Handling(
        start_s=0.0
    )
