"""The tracker reports each change of a worker once."""

from rota.core.model.job import JobId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.state import PodStage
from rota.engines.kubernetes.pods.termination import PodTermination
from rota.engines.kubernetes.pods.tracker import PodTracker, PodUpdate
from tests.support.kube_objects import WORKER, Object, condition, container, pod

ATTEMPT = JobId("job"), 1
UID = pod()["metadata"]["uid"]
OTHER = WorkerId(JobId("job"), 1, 1)


def at(
    version: int, phase: str, *, spec: Object | None = None, status: Object | None = None
) -> Object:
    return pod(phase, meta={"resourceVersion": str(version)}, spec=spec, status=status)


def seen(pod_tracker: PodTracker, shown: Object, worker: WorkerId = WORKER) -> PodUpdate:
    update = pod_tracker.see(shown, worker)
    assert update is not None
    return update


def over(version: int, code: int = 0) -> Object:
    return at(version, "Failed", status=container(terminated={"exitCode": code}))


def test_each_change_is_reported_once() -> None:
    pod_tracker = PodTracker()
    assert not seen(pod_tracker, at(1, "Pending")).has_started
    assert seen(pod_tracker, at(2, "Running")).has_started
    assert not seen(pod_tracker, at(3, "Running")).has_started
    assert seen(pod_tracker, over(4, 3)).termination == PodTermination(3)
    assert seen(pod_tracker, over(5, 3)).termination is None
    assert pod_tracker.terminations[WORKER] == PodTermination(3)


def test_a_fast_worker_has_started_and_ended() -> None:
    update = seen(PodTracker(), over(1))
    assert (update.has_started, update.termination) == (True, PodTermination(0))


def test_an_old_response_changes_nothing() -> None:
    pod_tracker = PodTracker()
    seen(pod_tracker, at(5, "Running"))
    update = seen(pod_tracker, at(3, "Pending"))
    assert update == PodUpdate(pod_tracker.pods[WORKER])
    assert pod_tracker.pods[WORKER].stage is PodStage.RUNNING


def test_the_gpus_of_a_bound_pod_are_fixed() -> None:
    """Edited annotations neither free a GPU in use nor take another one."""
    pod_tracker = PodTracker()
    seen(pod_tracker, at(1, "Running", spec={"nodeName": "n1"}))
    edited = at(2, "Running", spec={"nodeName": "n1"})
    edited["metadata"]["annotations"] = {naming.NODE: "n2", naming.GPUS: "5"}
    assert seen(pod_tracker, edited).pod_state.gpus == (0,)


def test_a_late_response_keeps_the_start_problem() -> None:
    """The response to the removal of the gate may arrive after the scheduler's verdict, which
    comes only once."""
    pod_tracker = PodTracker()
    words = {"status": "False", "reason": "Unschedulable", "message": "no claim"}
    told = seen(pod_tracker, at(3, "Pending", status=condition("PodScheduled", **words))).problem
    assert told is not None
    assert seen(pod_tracker, at(2, "Pending")).problem == told
    assert seen(pod_tracker, at(4, "Pending")).problem is None
    assert seen(pod_tracker, at(2, "Pending")).problem is None


def test_a_second_pod_of_a_worker_is_foreign() -> None:
    pod_tracker = PodTracker()
    seen(pod_tracker, at(1, "Running"))
    assert (
        pod_tracker.see(pod("Failed", meta={"uid": "copy", "resourceVersion": "2"}), WORKER) is None
    )
    assert pod_tracker.pod_deleted(WORKER, "copy") is None
    assert WORKER not in pod_tracker.terminations


def test_a_deleted_pod_ends_once() -> None:
    pod_tracker = PodTracker()
    seen(pod_tracker, at(1, "Running"))
    termination = pod_tracker.pod_deleted(WORKER, UID)
    assert termination is not None
    assert termination.is_lost
    finished = PodTracker()
    seen(finished, over(1))
    assert finished.pod_deleted(WORKER, UID) is None
    assert finished.terminations[WORKER] == PodTermination(0)


def test_a_set_termination_overrides_the_pod() -> None:
    pod_tracker = PodTracker()
    seen(pod_tracker, at(1, "Pending"))
    pod_tracker.set_termination(WORKER, PodTermination(126, "no such image"))
    assert pod_tracker.is_to_end(WORKER)
    assert seen(pod_tracker, over(2, 137)).termination == PodTermination(126, "no such image")


def test_an_attempt_is_over_when_stopped_or_all_workers_ended() -> None:
    pod_tracker = PodTracker()
    assert not pod_tracker.is_over(ATTEMPT)
    seen(pod_tracker, over(1))
    seen(pod_tracker, pod("Running", worker=OTHER), OTHER)
    assert not pod_tracker.is_over(ATTEMPT)
    pod_tracker.stop(ATTEMPT, 30.0)
    assert pod_tracker.is_over(ATTEMPT)


def test_an_ended_worker_uses_no_node() -> None:
    pod_tracker = PodTracker()
    seen(pod_tracker, at(1, "Pending"))
    assert [pod_state.worker for pod_state in pod_tracker.alive_on("n1")] == [WORKER]
    seen(pod_tracker, at(2, "Running", spec={"nodeName": "n2"}))
    assert pod_tracker.alive_on("n1") == []
    assert [pod_state.worker for pod_state in pod_tracker.alive_on("n2")] == [WORKER]
    seen(pod_tracker, at(3, "Failed", spec={"nodeName": "n2"}))
    assert pod_tracker.alive_on("n2") == []
    assert pod_tracker.alive() == []


def test_a_forgotten_attempt_leaves_nothing() -> None:
    pod_tracker = PodTracker()
    seen(pod_tracker, over(1))
    pod_tracker.set_termination(OTHER, PodTermination(126))
    pod_tracker.end_before_start(OTHER, PodTermination(126))
    pod_tracker.stop(ATTEMPT, 0.0)
    pod_tracker.forget(ATTEMPT)
    assert pod_tracker.members(ATTEMPT) == [WORKER], "its pod is still there"
    pod_tracker.pod_deleted(WORKER, UID)
    assert pod_tracker.members(ATTEMPT) == []
    assert not pod_tracker.terminations
    assert not any(map(pod_tracker.is_to_end, (WORKER, OTHER)))
    assert pod_tracker.attempts_of(JobId("job")) == []
