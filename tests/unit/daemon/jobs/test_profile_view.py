"""What an owner is told of a job that trains: newest figures, and the one most useful hint."""

from __future__ import annotations

import math

from rota.core.events import ProgressReported
from rota.core.model import Estimate, JobId
from rota.daemon.lessons import Live, hint, metrics_of, profile_of, worker_figures
from rota.daemon.trainees import Team, Trainee
from rota.store.base import Batch
from rota.store.records import Sample
from rota.wire.training import Handling, WorkerFigure
from tests.builders import Lab, cluster, job

HOUR = Estimate(3600.0)
NOBODY = Live()


def lab(**more: object) -> Lab:
    made = Lab(cluster("2x1"))
    made.run(job("a", 2, **more))
    return made


def told(lab: Lab, live: Live = NOBODY, *, has_end: bool = True, is_crowded: bool = False) -> str:
    return hint(lab.job("a"), live, has_end=has_end, is_crowded=is_crowded)


def test_whoever_says_nothing_is_asked_to():
    assert told(lab(), has_end=False).startswith("nobody knows how long it takes: submit with")
    assert told(lab(), Live([Trainee(0)]), has_end=False) == (
        "its end can be told after its first epoch"
    )
    assert told(lab(estimate=HOUR)) == ""


def test_stragglers_come_first():
    one, two = Live(slow={3: 1.6}), Live(slow={3: 1.6, 1: 2.0})
    assert told(lab(), one).startswith("worker 3 kept the others waiting")
    assert told(lab(), two).startswith("workers 1, 3 kept the others waiting")


def test_a_loss_is_worth_a_word_when_it_is_long():
    made = lab(epochs=100.0)
    made.tell(ProgressReported(JobId("a"), 1, 5.0, 100.0, saved=0.0))
    assert told(made) == ""
    made.tell(ProgressReported(JobId("a"), 1, 7.0, 100.0, saved=0.0))
    assert told(made).startswith("a stop now would lose more than ten minutes")


def test_who_counts_epochs_without_an_end_is_told_what_is_missing():
    made = lab()
    made.progress("a", 5.0, 100.0, epochs_total=math.inf)
    assert told(made).endswith("does not say how many there will be")
    assert profile_of(made.job("a"), made.store, live=NOBODY).epochs is None


def test_why_the_end_of_a_job_that_waits_is_not_foreseen():
    made = Lab(cluster("1x1"))
    made.submit(job("a", estimate=HOUR))
    assert told(made) == ""
    assert told(made, has_end=False, is_crowded=True).endswith("while so many jobs wait")
    assert told(made, has_end=False).endswith("how long the jobs before it take")


def test_workers_are_told_with_their_nodes_and_their_slowness():
    live = Live([Trainee(0, step_s=0.1), Trainee(1, step_s=0.2, memory_bytes=7)], {1: 2.0})
    assert worker_figures(lab().job("a"), live) == [
        WorkerFigure(0, "node-01", 0.1),
        WorkerFigure(1, "node-02", 0.2, memory_bytes=7, slowness=2.0),
    ]


def test_the_driver_knows_of_memory_that_the_program_does_not():
    made = lab(epochs=9.0)
    lead = Trainee(0, epochs_done=1.0, gpu_memory_bytes=5, card_bytes=7)
    team = Team(1, {0: lead})
    fact = team.next_fact(made.job("a"), lead, now=0.0)
    sample = team.sample(made.job("a"), lead, now=9.0)
    (figure,) = worker_figures(made.job("a"), Live([lead]))
    assert fact is not None
    assert sample is not None
    assert {fact.memory_bytes, sample.gpu_memory_bytes, figure.gpu_memory_bytes} == {7}


def test_the_first_worker_has_the_word_about_metrics_and_nonsense_has_none():
    live = Live(
        [Trainee(0, metrics={"loss": 1.0}), Trainee(1, metrics={"loss": 9.0, "x": math.nan})]
    )
    assert metrics_of(live) == {"loss": 1.0}


def test_a_job_that_is_over_is_told_by_its_samples():
    made = lab()
    found = profile_of(made.job("a"), made.store, live=Live())
    assert (found.workers, found.metrics, found.steps, found.epochs) == ([], {}, [], None)
    made.tell(ProgressReported(JobId("a"), 1, 5.0, 100.0, epochs_total=20.0))
    samples = tuple(
        Sample(
            JobId("a"), 1, float(n), worker=0, workers=2, epochs_done=n, metrics={"loss": 1.0 / n}
        )
        for n in (1, 2)
    )
    made.store.write(Batch(samples=samples)).result()
    found = profile_of(made.job("a"), made.store, live=Live())
    assert [each.at_s for each in found.steps] == [1.0, 2.0]
    assert (found.metrics, found.workers) == ({"loss": 0.5}, [WorkerFigure(0)])
    assert (found.epochs, found.epochs_done) == (20.0, 5.0)


def test_the_program_knows_better_how_long_its_start_took():
    made = lab()
    lead = Trainee(0, start_s=7.5, save_s=0.5, load_s=0.25)
    found = profile_of(made.job("a"), made.store, live=Live([lead]))
    assert found.handling == Handling(start_s=7.5, save_s=0.5, load_s=0.25, stop_s=None)


def test_how_long_saves_and_loads_took_outlives_the_attempt():
    made = lab(epochs=9.0)
    lead = Trainee(0, epochs_done=1.0, save_s=0.5, load_s=0.25)
    fact = Team(1, {0: lead}).next_fact(made.job("a"), lead, now=0.0)
    assert fact is not None
    made.tell(fact)
    made.progress("a", 2.0)
    made.exited("a", 0)
    ended = made.store.job(JobId("a"))
    assert ended is not None
    found = profile_of(ended, made.store, live=NOBODY).handling
    assert (found.save_s, found.load_s) == (0.5, 0.25)


def test_a_start_is_known_without_the_program():
    made = lab()
    assert profile_of(made.job("a"), made.store, live=Live()).handling == Handling(start_s=0.0)
