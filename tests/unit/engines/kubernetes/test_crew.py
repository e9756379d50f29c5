"""What the engine knows of its workers: each thing is new once."""

from rota.core.model import JobId
from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.bodies import Stage
from rota.engines.kubernetes.crew import Crew, News
from rota.engines.kubernetes.endings import Ending
from tests.unit.engines.kubernetes.objects import WORKER, Object, condition, container, pod

ATTEMPT = JobId("job"), 1
UID = pod()["metadata"]["uid"]
OTHER = WorkerId(JobId("job"), 1, 1)


def at(
    version: int, phase: str, *, spec: Object | None = None, status: Object | None = None
) -> Object:
    return pod(phase, meta={"resourceVersion": str(version)}, spec=spec, status=status)


def seen(crew: Crew, shown: Object, worker: WorkerId = WORKER) -> News:
    news = crew.see(shown, worker)
    assert news is not None
    return news


def over(version: int, code: int = 0) -> Object:
    return at(version, "Failed", status=container(terminated={"exitCode": code}))


def test_a_life_is_told_once() -> None:
    crew = Crew()
    assert not seen(crew, at(1, "Pending")).has_started
    assert seen(crew, at(2, "Running")).has_started
    assert not seen(crew, at(3, "Running")).has_started
    assert seen(crew, over(4, 3)).ending == Ending(3)
    assert seen(crew, over(5, 3)).ending is None
    assert crew.endings[WORKER] == Ending(3)


def test_one_that_was_quick_has_started_and_ended() -> None:
    news = seen(Crew(), over(1))
    assert (news.has_started, news.ending) == (True, Ending(0))


def test_an_answer_that_a_watch_has_overtaken_changes_nothing() -> None:
    crew = Crew()
    seen(crew, at(5, "Running"))
    news = seen(crew, at(3, "Pending"))
    assert news == News(crew.bodies[WORKER])
    assert crew.bodies[WORKER].stage is Stage.RUNNING


def test_what_a_pod_holds_is_settled_when_it_has_a_node() -> None:
    """Its notes may be edited: a GPU that runs is not free for that, and another not taken."""
    crew = Crew()
    seen(crew, at(1, "Running", spec={"nodeName": "n1"}))
    edited = at(2, "Running", spec={"nodeName": "n1"})
    edited["metadata"]["annotations"] = {names.NODE: "n2", names.GPUS: "5"}
    assert seen(crew, edited).body.gpus == (0,)


def test_what_keeps_a_pod_from_starting_is_not_forgotten_over_an_answer_that_comes_late() -> None:
    """The answer to whoever opened its gate: the cluster's scheduler has looked at it by then, and
    does not say so twice."""
    crew = Crew()
    words = {"status": "False", "reason": "Unschedulable", "message": "no claim"}
    told = seen(crew, at(3, "Pending", status=condition("PodScheduled", **words))).trouble
    assert told is not None
    assert seen(crew, at(2, "Pending")).trouble == told
    assert seen(crew, at(4, "Pending")).trouble is None
    assert seen(crew, at(2, "Pending")).trouble is None


def test_a_pod_that_only_looks_like_one_is_none() -> None:
    crew = Crew()
    seen(crew, at(1, "Running"))
    assert crew.see(pod("Failed", meta={"uid": "copy", "resourceVersion": "2"}), WORKER) is None
    assert crew.vanish(WORKER, "copy") is None
    assert WORKER not in crew.endings


def test_a_pod_that_vanishes_has_ended_and_one_that_had_ended_has_not_again() -> None:
    crew = Crew()
    seen(crew, at(1, "Running"))
    ending = crew.vanish(WORKER, UID)
    assert ending is not None
    assert ending.is_lost
    finished = Crew()
    seen(finished, over(1))
    assert finished.vanish(WORKER, UID) is None
    assert finished.endings[WORKER] == Ending(0)


def test_a_verdict_counts_more_than_what_the_pod_says() -> None:
    crew = Crew()
    seen(crew, at(1, "Pending"))
    crew.judge(WORKER, Ending(126, "no such image"))
    assert crew.is_to_end(WORKER)
    assert seen(crew, over(2, 137)).ending == Ending(126, "no such image")


def test_an_attempt_is_over_when_it_was_stopped_or_all_have_ended() -> None:
    crew = Crew()
    assert not crew.is_over(ATTEMPT)
    seen(crew, over(1))
    seen(crew, pod("Running", worker=OTHER), OTHER)
    assert not crew.is_over(ATTEMPT)
    crew.stop(ATTEMPT, 30.0)
    assert crew.is_over(ATTEMPT)


def test_who_has_ended_holds_nothing_on_a_node() -> None:
    crew = Crew()
    seen(crew, at(1, "Pending"))
    assert [body.worker for body in crew.alive_on("n1")] == [WORKER]
    seen(crew, at(2, "Running", spec={"nodeName": "n2"}))
    assert crew.alive_on("n1") == []
    assert [body.worker for body in crew.alive_on("n2")] == [WORKER]
    seen(crew, at(3, "Failed", spec={"nodeName": "n2"}))
    assert crew.alive_on("n2") == []
    assert crew.alive() == []


def test_nothing_is_left_of_an_attempt_that_is_forgotten() -> None:
    crew = Crew()
    seen(crew, over(1))
    crew.judge(OTHER, Ending(126))
    crew.end_unborn(OTHER, Ending(126))
    crew.stop(ATTEMPT, 0.0)
    crew.forget(ATTEMPT)
    assert crew.members(ATTEMPT) == [WORKER], "its pod is still there"
    crew.vanish(WORKER, UID)
    assert crew.members(ATTEMPT) == []
    assert not crew.endings
    assert not any(map(crew.is_to_end, (WORKER, OTHER)))
    assert crew.attempts_of(JobId("job")) == []
