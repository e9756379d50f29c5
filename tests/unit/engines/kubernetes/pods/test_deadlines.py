"""How long pods that cannot start may wait."""

from dataclasses import replace

from rota.core.model.events import WorkersLost
from rota.engines.kubernetes import reconciler
from rota.engines.kubernetes.pods.deadlines import (
    POD_BEING_CREATED,
    StartDeadlines,
    possible_problem,
)
from rota.engines.kubernetes.pods.start_problems import StartProblem
from rota.engines.kubernetes.pods.state import pod_state_of
from rota.engines.kubernetes.pods.termination import PodTermination
from rota.engines.kubernetes.settings import KubernetesSettings
from tests.support.kube_objects import WORKER, pod

RACE = StartProblem("no room", is_race=True)
STUCK = StartProblem("no such image", "is its name right?")


def deadlines() -> StartDeadlines:
    return StartDeadlines(KubernetesSettings(bind_patience_s=20.0, stuck_after_s=120.0))


def test_a_lost_race_is_given_up_soon_and_is_no_failure() -> None:
    watch = deadlines()
    watch.see(WORKER, RACE, now=100.0)
    watch.see(WORKER, RACE, now=115.0)
    assert watch.expired(119.0) == {}
    assert watch.expired(120.0) == {WORKER: PodTermination(-1, "no room", is_lost=True)}
    assert watch.expired(500.0) == {}


def test_a_refusal_of_a_node_is_marked() -> None:
    watch = deadlines()
    watch.see(WORKER, replace(RACE, is_refusal=True), now=0.0)
    [termination] = watch.expired(20.0).values()
    assert termination == PodTermination(-1, "no room", is_lost=True, is_refused=True)
    who = WORKER.job_id, WORKER.attempt, frozenset({WORKER.worker})
    assert reconciler.ended_event(WORKER, termination) == WorkersLost(
        *who, "no room", is_refused=True
    )


def test_a_start_problem_fails_after_the_time_limit_with_a_hint() -> None:
    watch = deadlines()
    watch.see(WORKER, STUCK, now=0.0)
    assert watch.expired(119.0) == {}
    assert watch.expired(120.0) == {
        WORKER: PodTermination(126, "no such image; is its name right?")
    }


def test_a_lasting_problem_is_reported_once() -> None:
    watch = deadlines()
    for passing in (POD_BEING_CREATED, RACE):
        watch.see(WORKER, passing, now=0.0)
        assert watch.unreported(1.0) == {}
    watch.see(WORKER, STUCK, now=1.0)
    assert watch.unreported(1.0) == {WORKER: "no such image"}
    watch.see(WORKER, StartProblem("back-off", "is its name right?"), now=2.0)
    assert watch.unreported(2.0) == {}


def test_workers_with_the_same_problem_are_reported_once() -> None:
    watch = deadlines()
    first, second, late = (replace(WORKER, worker=each) for each in range(3))
    other = replace(WORKER, attempt=WORKER.attempt + 1)
    for worker in (first, second, other):
        watch.see(worker, STUCK, now=0.0)
    assert watch.unreported(0.0) == {first: "no such image", other: "no such image"}
    watch.see(late, STUCK, now=1.0)
    assert watch.unreported(1.0) == {}


def test_a_long_wait_is_reported() -> None:
    watch = deadlines()
    unseen = possible_problem(pod_state_of(pod(), WORKER), None)
    watch.see(WORKER, unseen, now=0.0)
    assert watch.unreported(119.0) == {}
    assert "scheduler has not tried" in watch.unreported(120.0)[WORKER]
    assert watch.unreported(121.0) == {}
    made = possible_problem(pod_state_of(pod(spec={"nodeName": "n1"}), WORKER), None)
    watch.see(WORKER, made, now=130.0)
    assert watch.unreported(131.0) == {}
    assert watch.unreported(250.0) == {WORKER: "its node is creating it"}
    assert watch.expired(9000.0) == {}


def test_an_outage_is_reported_at_once_and_is_no_failure() -> None:
    watch, outage = deadlines(), StartProblem("no webhook", is_outage=True)
    watch.see(WORKER, outage, now=0.0)
    assert watch.unreported(1.0) == {WORKER: "no webhook"}
    watch.see(WORKER, outage, now=100.0)
    assert watch.expired(119.0) == {}
    assert watch.expired(120.0) == {WORKER: PodTermination(-1, "no webhook", is_lost=True)}


def test_a_solved_problem_is_forgotten() -> None:
    watch = deadlines()
    watch.see(WORKER, RACE, now=0.0)
    watch.see(WORKER, None, now=1.0)
    assert watch.expired(1000.0) == {}


def test_another_problem_restarts_the_time_limit() -> None:
    watch = deadlines()
    watch.see(WORKER, RACE, now=0.0)
    watch.see(WORKER, STUCK, now=19.0)
    assert watch.expired(138.0) == {}
    assert WORKER in watch.expired(139.0)


def test_an_unclear_wait_is_checked_and_not_failed() -> None:
    watch = deadlines()
    watch.see(WORKER, POD_BEING_CREATED, now=0.0)
    assert watch.unclear(119.0) == []
    assert watch.unclear(120.0) == [WORKER]
    watch.see(WORKER, POD_BEING_CREATED, now=121.0)
    assert watch.unclear(134.0) == []
    assert watch.unclear(135.0) == [WORKER]
    assert watch.expired(1000.0) == {}


def test_a_problem_after_an_unclear_wait_has_its_own_time_limit() -> None:
    watch = deadlines()
    watch.see(WORKER, POD_BEING_CREATED, now=0.0)
    watch.see(WORKER, STUCK, now=200.0)
    assert watch.unclear(319.0) == []
    assert watch.expired(319.0) == {}
    assert WORKER in watch.expired(320.0)
