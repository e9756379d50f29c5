"""How long what cannot start is waited for."""

from dataclasses import replace

from rota.core.events import WorkersLost
from rota.engines.kubernetes import facts
from rota.engines.kubernetes.bodies import body_of
from rota.engines.kubernetes.endings import Ending, Trouble
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.vigil import BEING_MADE, Vigil, trouble_with
from tests.unit.engines.kubernetes.objects import WORKER, pod

RACE = Trouble("no room", is_race=True)
STUCK = Trouble("no such image", "is its name right?")


def vigil() -> Vigil:
    return Vigil(KubernetesSettings(bind_patience_s=20.0, stuck_after_s=120.0))


def test_a_lost_race_is_given_up_soon_and_is_nobodys_failure() -> None:
    watch = vigil()
    watch.see(WORKER, RACE, now=100.0)
    watch.see(WORKER, RACE, now=115.0)
    assert watch.verdicts(119.0) == {}
    assert watch.verdicts(120.0) == {WORKER: Ending(-1, "no room", is_lost=True)}
    assert watch.verdicts(500.0) == {}


def test_a_node_that_cannot_have_a_pod_is_not_to_be_sent_the_next_one() -> None:
    watch = vigil()
    watch.see(WORKER, replace(RACE, is_refusal=True), now=0.0)
    [ending] = watch.verdicts(20.0).values()
    assert ending == Ending(-1, "no room", is_lost=True, is_refused=True)
    who = WORKER.job_id, WORKER.attempt, frozenset({WORKER.worker})
    assert facts.ended(WORKER, ending) == WorkersLost(*who, "no room", is_refused=True)


def test_what_cannot_start_is_given_its_time_and_then_a_hint() -> None:
    watch = vigil()
    watch.see(WORKER, STUCK, now=0.0)
    assert watch.verdicts(119.0) == {}
    assert watch.verdicts(120.0) == {WORKER: Ending(126, "no such image; is its name right?")}


def test_the_owner_is_told_once_of_what_may_take_its_time() -> None:
    watch = vigil()
    for passing in (BEING_MADE, RACE):
        watch.see(WORKER, passing, now=0.0)
        assert watch.untold(1.0) == {}
    watch.see(WORKER, STUCK, now=1.0)
    assert watch.untold(1.0) == {WORKER: "no such image"}
    watch.see(WORKER, Trouble("back-off", "is its name right?"), now=2.0)
    assert watch.untold(2.0) == {}


def test_one_worker_speaks_for_all_who_are_kept_by_the_same() -> None:
    watch = vigil()
    first, second, late = (replace(WORKER, worker=each) for each in range(3))
    other = replace(WORKER, attempt=WORKER.attempt + 1)
    for worker in (first, second, other):
        watch.see(worker, STUCK, now=0.0)
    assert watch.untold(0.0) == {first: "no such image", other: "no such image"}
    watch.see(late, STUCK, now=1.0)
    assert watch.untold(1.0) == {}


def test_the_owner_is_told_where_a_pod_stays_for_long() -> None:
    watch = vigil()
    unseen = trouble_with(body_of(pod(), WORKER), None)
    watch.see(WORKER, unseen, now=0.0)
    assert watch.untold(119.0) == {}
    assert "scheduler has not looked" in watch.untold(120.0)[WORKER]
    assert watch.untold(121.0) == {}
    made = trouble_with(body_of(pod(spec={"nodeName": "n1"}), WORKER), None)
    watch.see(WORKER, made, now=130.0)
    assert watch.untold(131.0) == {}
    assert watch.untold(250.0) == {WORKER: "its node is making it"}
    assert watch.verdicts(9000.0) == {}


def test_an_outage_is_told_at_once_given_its_time_and_nobodys_failure() -> None:
    watch, outage = vigil(), Trouble("no webhook", is_outage=True)
    watch.see(WORKER, outage, now=0.0)
    assert watch.untold(1.0) == {WORKER: "no webhook"}
    watch.see(WORKER, outage, now=100.0)
    assert watch.verdicts(119.0) == {}
    assert watch.verdicts(120.0) == {WORKER: Ending(-1, "no webhook", is_lost=True)}


def test_trouble_that_passes_is_forgotten() -> None:
    watch = vigil()
    watch.see(WORKER, RACE, now=0.0)
    watch.see(WORKER, None, now=1.0)
    assert watch.verdicts(1000.0) == {}


def test_another_trouble_begins_anew() -> None:
    watch = vigil()
    watch.see(WORKER, RACE, now=0.0)
    watch.see(WORKER, STUCK, now=19.0)
    assert watch.verdicts(138.0) == {}
    assert WORKER in watch.verdicts(139.0)


def test_what_takes_long_to_be_made_is_asked_about_and_not_judged() -> None:
    watch = vigil()
    watch.see(WORKER, BEING_MADE, now=0.0)
    assert watch.unclear(119.0) == []
    assert watch.unclear(120.0) == [WORKER]
    watch.see(WORKER, BEING_MADE, now=121.0)
    assert watch.unclear(134.0) == []
    assert watch.unclear(135.0) == [WORKER]
    assert watch.verdicts(1000.0) == {}


def test_who_was_being_made_for_long_has_all_the_time_of_another_trouble() -> None:
    watch = vigil()
    watch.see(WORKER, BEING_MADE, now=0.0)
    watch.see(WORKER, STUCK, now=200.0)
    assert watch.unclear(319.0) == []
    assert watch.verdicts(319.0) == {}
    assert WORKER in watch.verdicts(320.0)
