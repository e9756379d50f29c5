"""Terminations and start problems from the status of a pod."""

import pytest

from rota.engines.exit_reasons import OUT_OF_MEMORY
from rota.engines.kubernetes.pods.code_init_container import HINT
from rota.engines.kubernetes.pods.start_problems import StartProblem, start_problem_of
from rota.engines.kubernetes.pods.state import PodStage, stage_of
from rota.engines.kubernetes.pods.termination import (
    PodStopRequest,
    PodTermination,
    termination_before_start,
    termination_of,
    termination_unseen,
)
from tests.support.kube_objects import Object, condition, container, pod

NOTHING, STOP, KILL = (
    PodStopRequest(),
    PodStopRequest(is_stop=True),
    PodStopRequest(is_kill=True),
)
DELETED: Object = {"deletionTimestamp": "2026-11-16T08:00:00Z", "deletionGracePeriodSeconds": 30}


def exited(code: int, **more: str) -> Object:
    return container(terminated={"exitCode": code, "startedAt": "2026-11-16T08:00:00Z", **more})


def failed(code: int, **more: str) -> Object:
    return pod("Failed", status=exited(code, **more))


@pytest.mark.parametrize(
    ("ended", "stop_request", "termination"),
    [
        (pod("Succeeded", status=exited(0)), NOTHING, PodTermination(0)),
        (failed(3), NOTHING, PodTermination(3)),
        (failed(139), NOTHING, PodTermination(139, "ended by SIGSEGV")),
        (failed(143), STOP, PodTermination(143)),
        (failed(0), STOP, PodTermination(0)),
        (
            failed(137),
            STOP,
            PodTermination(137, "did not end within its grace period and was killed"),
        ),
        (failed(143), KILL, PodTermination(137)),
        (
            pod("Failed", meta=DELETED, status=exited(143)),
            NOTHING,
            PodTermination(143, "its pod was deleted", is_retriable=True),
        ),
        (
            pod("Failed", meta=DELETED, status=exited(1, finishedAt="2026-11-16T07:59:30Z")),
            NOTHING,
            PodTermination(
                143, "its pod was deleted, and it exited with code 1", is_retriable=True
            ),
        ),
        (
            pod("Failed", meta=DELETED, status=exited(1, finishedAt="2026-11-16T07:59:29Z")),
            NOTHING,
            PodTermination(1),
        ),
        (
            pod("Succeeded", meta=DELETED, status=exited(0, finishedAt="2026-11-16T07:59:31Z")),
            NOTHING,
            PodTermination(
                143, "its pod was deleted, and it exited with code 0", is_retriable=True
            ),
        ),
        (
            pod("Succeeded", meta=DELETED, status=exited(0, finishedAt="2026-11-16T07:59:29Z")),
            NOTHING,
            PodTermination(0),
        ),
        (  # The clock of its node is behind.
            pod("Failed", meta=DELETED, status=exited(143, finishedAt="2026-11-16T07:50:00Z")),
            NOTHING,
            PodTermination(143, "its pod was deleted", is_retriable=True),
        ),
        (
            pod(
                "Failed",
                status=exited(137) | {"reason": "Evicted", "message": "The node was low on disk."},
            ),
            NOTHING,
            PodTermination(
                137, "evicted by its node: The node was low on disk.", is_retriable=True
            ),
        ),
        (
            pod(
                "Failed",
                status=exited(143) | condition("DisruptionTarget", reason="PreemptionByScheduler"),
            ),
            NOTHING,
            PodTermination(
                -1,
                "preempted by the cluster's scheduler for a pod of higher priority",
                is_lost=True,
            ),
        ),
        (
            pod(
                "Succeeded",
                meta=DELETED,
                status=exited(0) | condition("DisruptionTarget", reason="EvictionByEvictionAPI"),
            ),
            NOTHING,
            PodTermination(-1, "its pod was evicted", is_lost=True),
        ),
        (
            pod(
                "Failed",
                status=exited(143) | condition("DisruptionTarget", reason="TerminationByKubelet"),
            ),
            NOTHING,
            PodTermination(143, "terminated by its node", is_retriable=True),
        ),
        (
            pod(
                "Failed",
                status=exited(137) | condition("DisruptionTarget", reason="DeletionByPodGC"),
            ),
            NOTHING,
            PodTermination(-1, "its node is gone", is_lost=True),
        ),
    ],
)
def test_a_program_that_ran(
    ended: Object, stop_request: PodStopRequest, termination: PodTermination
) -> None:
    assert termination_of(ended, stop_request) == termination


def test_out_of_memory_is_named_with_the_limit() -> None:
    limits = {"resources": {"limits": {"memory": "512Mi"}}}
    dead = failed(137, reason="OOMKilled")
    dead["spec"]["containers"][0] |= limits
    assert termination_of(dead, NOTHING) == PodTermination(
        137, f"{OUT_OF_MEMORY}: the limit is 512Mi"
    )


FETCHED_IN_VAIN = {
    "initContainerStatuses": [
        {"name": "first", "state": {"terminated": {"exitCode": 0}}},
        {"name": "fetch", "state": {"terminated": {"exitCode": 3}}},
    ]
}
NO_CODE = "this token has ended"


def fetch_failed(code: int) -> Object:
    ended = {"exitCode": code, "message": f"{NO_CODE}\n"}
    return {"initContainerStatuses": [{"name": "code", "state": {"terminated": ended}}]}


UNBOUND = pod("Pending", meta=DELETED | {"deletionGracePeriodSeconds": 0})
NOT_FOUND = 'exec: "nothing": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("ended", "stop_request", "termination"),
    [
        (UNBOUND, STOP, PodTermination(143, "stopped before it started")),
        (UNBOUND, KILL, PodTermination(137, "stopped before it started")),
        (
            UNBOUND,
            NOTHING,
            PodTermination(-1, "its pod was deleted before it started", is_lost=True),
        ),
        (
            pod("Failed", status={"reason": "OutOfcpu", "message": "Node didn't have enough"}),
            NOTHING,
            PodTermination(
                -1, "its node refused it: OutOfcpu: Node didn't have enough", is_lost=True
            ),
        ),
        (  # It was under way, and its node has forgotten how far it came.
            pod(
                "Failed",
                status=exited(137, reason="ContainerStatusUnknown")
                | {"reason": "Evicted", "message": "The node was low on disk."}
                | condition("DisruptionTarget", reason="TerminationByKubelet"),
            ),
            NOTHING,
            PodTermination(-1, "evicted by its node: The node was low on disk.", is_lost=True),
        ),
        (
            failed(128, reason="StartError", message=f"failed to create task: {NOT_FOUND}"),
            NOTHING,
            PodTermination(127, 'cannot be run: "nothing": executable file not found in $PATH'),
        ),
        (
            failed(128, reason="StartError", message="exec: permission denied"),
            NOTHING,
            PodTermination(126, "cannot be run: permission denied"),
        ),
        (failed(137, reason="ContainerStatusUnknown"), STOP, termination_before_start(STOP)),
        (
            pod("Failed", status=FETCHED_IN_VAIN),
            NOTHING,
            PodTermination(3, "its init container fetch exited with code 3"),
        ),
        (
            pod("Failed", status=fetch_failed(1)),
            NOTHING,
            PodTermination(126, f"could not fetch the shipped code: {NO_CODE}; {HINT}"),
        ),
        (
            pod("Failed", status=fetch_failed(75)),
            NOTHING,
            PodTermination(
                126,
                f"could not fetch the shipped code: {NO_CODE}; {HINT}",
                is_retriable=True,
            ),
        ),
        (
            pod(
                "Failed",
                status=FETCHED_IN_VAIN
                | condition("DisruptionTarget", reason="EvictionByEvictionAPI"),
            ),
            NOTHING,
            PodTermination(-1, "its pod was evicted", is_lost=True),
        ),
    ],
)
def test_a_program_that_never_ran(
    ended: Object, stop_request: PodStopRequest, termination: PodTermination
) -> None:
    assert termination_of(ended, stop_request) == termination


@pytest.mark.parametrize("stop_request", [NOTHING, STOP, KILL])
def test_a_pod_deleted_by_force_is_over(
    stop_request: PodStopRequest,
) -> None:
    forced = pod("Running", meta=DELETED | {"deletionGracePeriodSeconds": 0})
    assert stage_of(forced) is PodStage.OVER
    assert termination_of(forced, stop_request) == termination_unseen(stop_request)


def test_a_pod_that_is_being_stopped_is_not_over() -> None:
    assert stage_of(pod("Running", meta=DELETED, spec={"nodeName": "n1"})) is PodStage.RUNNING
    assert stage_of(pod("Pending", meta=DELETED, spec={"nodeName": "n1"})) is PodStage.WAITING


def test_a_deleted_pod_ended_as_requested() -> None:
    assert [termination_unseen(stop_request).code for stop_request in (STOP, KILL)] == [143, 137]
    assert termination_unseen(NOTHING).is_lost


def waiting(reason: str, message: str = "") -> Object:
    return pod(status=container(waiting={"reason": reason, "message": message}))


def unschedulable(message: str, reason: str = "Unschedulable") -> Object:
    return pod(status=condition("PodScheduled", status="False", reason=reason, message=message))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ErrImagePull", "its image cannot be pulled: no such host"),
        ("ImagePullBackOff", "its image cannot be pulled: no such host"),
        ("InvalidImageName", "its image has an invalid name: no such host"),
        ("CreateContainerConfigError", "its container has an invalid configuration: no such host"),
    ],
)
def test_problems_of_waiting_containers(reason: str, words: str) -> None:
    problem = start_problem_of(waiting(reason, "no such host"))
    assert problem is not None
    assert (problem.message, problem.is_race) == (words, False)
    assert problem.hint


def test_a_container_that_is_being_created_has_no_problem() -> None:
    assert start_problem_of(waiting("ContainerCreating")) is None
    assert start_problem_of(pod()) is None


def test_an_unschedulable_pod_is_a_lost_race() -> None:
    assert start_problem_of(
        unschedulable("0/5 nodes are available: 1 Insufficient nvidia.com/gpu.")
    ) == (
        StartProblem(
            "the cluster's scheduler could not place it: "
            "0/5 nodes are available: 1 Insufficient nvidia.com/gpu.",
            is_race=True,
        )
    )


@pytest.mark.parametrize(
    "said",
    [
        "pod has unbound immediate PersistentVolumeClaims.",
        'persistentvolumeclaim "data" not found.',
        'persistentvolumeclaim "data" is being deleted.',
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv1".',
        "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
    ],
)
def test_a_missing_volume_is_no_race(said: str) -> None:
    problem = start_problem_of(unschedulable(f"0/2 nodes are available: {said}"))
    assert problem is not None
    assert not problem.is_race
    assert "claim" in problem.hint


def test_an_unprovisioned_volume_is_no_race() -> None:
    said = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    problem = start_problem_of(unschedulable(said, "SchedulerError"))
    assert problem is not None
    assert not problem.is_race


@pytest.mark.parametrize(
    "said",
    [
        "1 node(s) didn't match PersistentVolume's node affinity",
        "1 node(s) had volume node affinity conflict",
        "1 node(s) exceed max volume count",
        "1 node(s) had no available volume zone",
        "1 node(s) didn't find available persistent volumes to bind",
        "1 node(s) did not have enough free storage",
        "1 node(s) unavailable: PersistentVolumeClaim with ReadWriteOncePod is already in-use",
    ],
)
def test_a_volume_problem_of_one_node_is_a_lost_race(said: str) -> None:
    others = "4 node(s) didn't match Pod's node affinity/selector"
    problem = start_problem_of(unschedulable(f"0/5 nodes are available: {said}, {others}."))
    assert problem is not None
    assert (problem.is_race, problem.is_refusal) == (True, True)


def test_messages_of_the_cluster_are_escaped_and_shortened() -> None:
    problem = start_problem_of(waiting("ErrImagePull", "\x1b[2J" + "x" * 10_000))
    assert problem is not None
    assert "\x1b" not in problem.message
    assert len(problem.message) < 400
