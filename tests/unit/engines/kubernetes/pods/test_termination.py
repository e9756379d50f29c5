"""What a pod's end means, and what keeps one from starting."""

import pytest

from rota.engines.kubernetes.bodies import Stage, stage_of
from rota.engines.kubernetes.endings import (
    Ending,
    Trouble,
    Wish,
    ending_of,
    trouble_of,
    unborn,
    vanished,
)
from rota.engines.kubernetes.fetching import HINT
from rota.engines.words import OUT_OF_MEMORY
from tests.unit.engines.kubernetes.objects import Object, condition, container, pod

NOTHING, STOP, KILL = Wish(), Wish(is_stopped=True), Wish(is_doomed=True)
DELETED: Object = {"deletionTimestamp": "2026-11-16T08:00:00Z", "deletionGracePeriodSeconds": 30}


def exited(code: int, **more: str) -> Object:
    return container(terminated={"exitCode": code, "startedAt": "2026-11-16T08:00:00Z", **more})


def failed(code: int, **more: str) -> Object:
    return pod("Failed", status=exited(code, **more))


@pytest.mark.parametrize(
    ("ended", "wish", "ending"),
    [
        (pod("Succeeded", status=exited(0)), NOTHING, Ending(0)),
        (failed(3), NOTHING, Ending(3)),
        (failed(139), NOTHING, Ending(139, "ended by SIGSEGV")),
        (failed(143), STOP, Ending(143)),
        (failed(0), STOP, Ending(0)),
        (
            failed(137),
            STOP,
            Ending(137, "did not end within its grace period and was killed"),
        ),
        (failed(143), KILL, Ending(137)),
        (
            pod("Failed", meta=DELETED, status=exited(143)),
            NOTHING,
            Ending(143, "somebody deleted its pod", is_retriable=True),
        ),
        (
            pod("Failed", meta=DELETED, status=exited(1, finishedAt="2026-11-16T07:59:30Z")),
            NOTHING,
            Ending(143, "somebody deleted its pod, and it ended with 1", is_retriable=True),
        ),
        (
            pod("Failed", meta=DELETED, status=exited(1, finishedAt="2026-11-16T07:59:29Z")),
            NOTHING,
            Ending(1),
        ),
        (
            pod("Succeeded", meta=DELETED, status=exited(0, finishedAt="2026-11-16T07:59:31Z")),
            NOTHING,
            Ending(143, "somebody deleted its pod, and it ended with 0", is_retriable=True),
        ),
        (
            pod("Succeeded", meta=DELETED, status=exited(0, finishedAt="2026-11-16T07:59:29Z")),
            NOTHING,
            Ending(0),
        ),
        (  # The clock of its node is behind.
            pod("Failed", meta=DELETED, status=exited(143, finishedAt="2026-11-16T07:50:00Z")),
            NOTHING,
            Ending(143, "somebody deleted its pod", is_retriable=True),
        ),
        (
            pod(
                "Failed",
                status=exited(137) | {"reason": "Evicted", "message": "The node was low on disk."},
            ),
            NOTHING,
            Ending(137, "evicted by its node: The node was low on disk.", is_retriable=True),
        ),
        (
            pod(
                "Failed",
                status=exited(143) | condition("DisruptionTarget", reason="PreemptionByScheduler"),
            ),
            NOTHING,
            Ending(
                -1,
                "the cluster's scheduler gave its place to a pod of higher priority",
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
            Ending(-1, "its pod was evicted", is_lost=True),
        ),
        (
            pod(
                "Failed",
                status=exited(143) | condition("DisruptionTarget", reason="TerminationByKubelet"),
            ),
            NOTHING,
            Ending(143, "its node ended it", is_retriable=True),
        ),
        (
            pod(
                "Failed",
                status=exited(137) | condition("DisruptionTarget", reason="DeletionByPodGC"),
            ),
            NOTHING,
            Ending(-1, "its node is gone", is_lost=True),
        ),
    ],
)
def test_a_program_that_ran(ended: Object, wish: Wish, ending: Ending) -> None:
    assert ending_of(ended, wish) == ending


def test_out_of_memory_is_named_with_the_limit() -> None:
    limits = {"resources": {"limits": {"memory": "512Mi"}}}
    dead = failed(137, reason="OOMKilled")
    dead["spec"]["containers"][0] |= limits
    assert ending_of(dead, NOTHING) == Ending(137, f"{OUT_OF_MEMORY}: the limit is 512Mi")


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
    ("ended", "wish", "ending"),
    [
        (UNBOUND, STOP, Ending(143, "stopped before it started")),
        (UNBOUND, KILL, Ending(137, "stopped before it started")),
        (UNBOUND, NOTHING, Ending(-1, "somebody deleted its pod before it started", is_lost=True)),
        (
            pod("Failed", status={"reason": "OutOfcpu", "message": "Node didn't have enough"}),
            NOTHING,
            Ending(-1, "its node refused it: OutOfcpu: Node didn't have enough", is_lost=True),
        ),
        (  # It was under way, and its node has forgotten how far it came.
            pod(
                "Failed",
                status=exited(137, reason="ContainerStatusUnknown")
                | {"reason": "Evicted", "message": "The node was low on disk."}
                | condition("DisruptionTarget", reason="TerminationByKubelet"),
            ),
            NOTHING,
            Ending(-1, "evicted by its node: The node was low on disk.", is_lost=True),
        ),
        (
            failed(128, reason="StartError", message=f"failed to create task: {NOT_FOUND}"),
            NOTHING,
            Ending(127, 'cannot be run: "nothing": executable file not found in $PATH'),
        ),
        (
            failed(128, reason="StartError", message="exec: permission denied"),
            NOTHING,
            Ending(126, "cannot be run: permission denied"),
        ),
        (failed(137, reason="ContainerStatusUnknown"), STOP, unborn(STOP)),
        (
            pod("Failed", status=FETCHED_IN_VAIN),
            NOTHING,
            Ending(3, "its init container fetch ended with 3"),
        ),
        (
            pod("Failed", status=fetch_failed(1)),
            NOTHING,
            Ending(126, f"what was shipped with it could not be fetched: {NO_CODE}; {HINT}"),
        ),
        (
            pod("Failed", status=fetch_failed(75)),
            NOTHING,
            Ending(
                126,
                f"what was shipped with it could not be fetched: {NO_CODE}; {HINT}",
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
            Ending(-1, "its pod was evicted", is_lost=True),
        ),
    ],
)
def test_a_program_that_never_ran(ended: Object, wish: Wish, ending: Ending) -> None:
    assert ending_of(ended, wish) == ending


@pytest.mark.parametrize("wish", [NOTHING, STOP, KILL])
def test_a_pod_that_was_let_go_of_without_a_word_is_as_good_as_gone(wish: Wish) -> None:
    forced = pod("Running", meta=DELETED | {"deletionGracePeriodSeconds": 0})
    assert stage_of(forced) is Stage.OVER
    assert ending_of(forced, wish) == vanished(wish)


def test_a_pod_that_is_being_stopped_is_not_over() -> None:
    assert stage_of(pod("Running", meta=DELETED, spec={"nodeName": "n1"})) is Stage.RUNNING
    assert stage_of(pod("Pending", meta=DELETED, spec={"nodeName": "n1"})) is Stage.WAITING


def test_a_pod_that_vanished_ended_as_it_was_asked_to() -> None:
    assert [vanished(wish).code for wish in (STOP, KILL)] == [143, 137]
    assert vanished(NOTHING).is_lost


def waiting(reason: str, message: str = "") -> Object:
    return pod(status=container(waiting={"reason": reason, "message": message}))


def unschedulable(message: str, reason: str = "Unschedulable") -> Object:
    return pod(status=condition("PodScheduled", status="False", reason=reason, message=message))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ErrImagePull", "its image cannot be pulled: no such host"),
        ("ImagePullBackOff", "its image cannot be pulled: no such host"),
        ("InvalidImageName", "its image has a name that cannot be: no such host"),
        ("CreateContainerConfigError", "its container cannot be made as described: no such host"),
    ],
)
def test_what_keeps_a_container_from_starting(reason: str, words: str) -> None:
    trouble = trouble_of(waiting(reason, "no such host"))
    assert trouble is not None
    assert (trouble.words, trouble.is_race) == (words, False)
    assert trouble.hint


def test_a_container_that_is_being_made_is_in_no_trouble() -> None:
    assert trouble_of(waiting("ContainerCreating")) is None
    assert trouble_of(pod()) is None


def test_a_place_that_is_taken_is_a_lost_race() -> None:
    assert trouble_of(unschedulable("0/5 nodes are available: 1 Insufficient nvidia.com/gpu.")) == (
        Trouble(
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
def test_a_volume_that_does_not_come_is_no_race(said: str) -> None:
    trouble = trouble_of(unschedulable(f"0/2 nodes are available: {said}"))
    assert trouble is not None
    assert not trouble.is_race
    assert "claim" in trouble.hint


def test_a_volume_that_nobody_provides_is_no_race() -> None:
    said = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    trouble = trouble_of(unschedulable(said, "SchedulerError"))
    assert trouble is not None
    assert not trouble.is_race


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
def test_a_volume_that_only_this_node_cannot_have_is_a_lost_race(said: str) -> None:
    others = "4 node(s) didn't match Pod's node affinity/selector"
    trouble = trouble_of(unschedulable(f"0/5 nodes are available: {said}, {others}."))
    assert trouble is not None
    assert (trouble.is_race, trouble.is_refusal) == (True, True)


def test_what_a_cluster_says_is_shown_and_never_obeyed() -> None:
    trouble = trouble_of(waiting("ErrImagePull", "\x1b[2J" + "x" * 10_000))
    assert trouble is not None
    assert "\x1b" not in trouble.words
    assert len(trouble.words) < 400
