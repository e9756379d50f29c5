"""How a worker ended: its exit code and the reason, from the status of its pod. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from rota.engines.exit_reasons import OUT_OF_MEMORY
from rota.engines.kubernetes.logs.parser import timestamp_s
from rota.engines.kubernetes.pods import code_init_container
from rota.engines.kubernetes.pods.naming import is_external_pod
from rota.engines.kubernetes.pods.state import KILL_GRACE_S, condition, container, has_run
from rota.errors import shown
from rota.kube.resources import Object, part, parts

STOPPED_CODE, KILLED_CODE = 143, 137
CANNOT_RUN, NOT_FOUND = 126, 127
FIRST_SIGNAL_CODE = 128
REASON_CHARS = 300
"""The longest part of a cluster's message that is passed on, in characters."""
NEVER_STARTED = "stopped before it started"
POD_DELETED = "its pod was deleted"
DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by the cluster's scheduler for a pod of higher priority",
    "EvictionByEvictionAPI": "its pod was evicted",
    "DeletionByTaintManager": "evicted because its node was tainted",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "terminated by its node",
}
EXTERNAL_DISRUPTIONS = frozenset(DISRUPTIONS) - {"TerminationByKubelet"}
"""The cluster removed the pod for reasons outside of it: the worker is lost, whatever its exit
code. The kubelet is not in this set: it may end a pod that used up the resources of its node."""
EVICTED = "Evicted"
NODE_REFUSED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Preempting", "NodePorts")
"""Prefixes of the reason if a node refused a pod that was bound to it."""


@dataclass(frozen=True, slots=True)
class PodTermination:
    """How a worker ended. `is_lost`: the exit code is unknown, or the worker never ran.
    `is_refused`: a lost worker whose node could not run it, while another node may."""

    code: int
    reason: str = ""
    is_lost: bool = False
    is_retriable: bool = False
    is_refused: bool = False


NODE_GONE = PodTermination(-1, "its node is gone", is_lost=True)
GATE_BYPASSED = PodTermination(
    -1, "another client removed the scheduling gate of its pod", is_lost=True
)
GPU_HOLDER_GONE = PodTermination(-1, "the placeholder pod of its shared GPU is gone", is_lost=True)


@dataclass(frozen=True, slots=True)
class PodStopRequest:
    """What rota requested: nothing, a stop or a kill."""

    is_stop: bool = False
    is_kill: bool = False


def termination_of_bug(error: Exception) -> PodTermination:
    """The termination of a worker whose start failed because of a bug. The log has the details."""
    what = f"a bug in rota stopped its start: {type(error).__name__}: {error}"
    return PodTermination(CANNOT_RUN, f"{shown(what, REASON_CHARS)}; please report it")


def termination_of(pod: Object, stop_request: PodStopRequest) -> PodTermination:
    """The termination of a pod that is over."""
    status = part(pod, "status")
    ended = part(container(pod), "state", "terminated")
    if not has_run(pod):
        return _never_ran(pod, stop_request, ended=ended)
    if not ended and not _succeeded(pod):
        return termination_unseen(stop_request)
    meta, code = pod["metadata"], int(ended.get("exitCode", 0))
    is_killed = stop_request.is_kill or meta.get("deletionGracePeriodSeconds") == KILL_GRACE_S
    if is_killed and code == STOPPED_CODE:
        # The SIGTERM before the SIGKILL ended it.
        code = KILLED_CODE
    if ended.get("reason") == "OOMKilled":
        return PodTermination(KILLED_CODE, f"{OUT_OF_MEMORY}{_limit(pod)}")
    if stop_request.is_kill:
        return PodTermination(code)
    if stop_request.is_stop:
        late = "did not end within its grace period and was killed"
        return PodTermination(code, late if code == KILLED_CODE and not is_killed else "")
    return _ended_by_itself(
        pod, code, reported=join_reason(status.get("reason"), status.get("message"))
    )


def termination_unseen(stop_request: PodStopRequest) -> PodTermination:
    """The termination of a pod that was deleted before its end was seen."""
    if stop_request.is_kill:
        return PodTermination(KILLED_CODE)
    if stop_request.is_stop:
        return PodTermination(STOPPED_CODE)
    return PodTermination(-1, f"{POD_DELETED}, or its node is gone", is_lost=True)


def termination_before_start(stop_request: PodStopRequest) -> PodTermination:
    """The termination of a worker that was stopped before it had a pod or ran."""
    return PodTermination(KILLED_CODE if stop_request.is_kill else STOPPED_CODE, NEVER_STARTED)


def _never_ran(pod: Object, stop_request: PodStopRequest, *, ended: Object) -> PodTermination:
    status = part(pod, "status")
    reason, message = str(status.get("reason") or ""), status.get("message")
    if stop_request.is_kill or stop_request.is_stop:
        return termination_before_start(stop_request)
    if ended.get("reason") in ("StartError", "ContainerCannotRun", "RunContainerError"):
        return _cannot_run(str(ended.get("message") or ended["reason"]))
    if reason == EVICTED:
        return PodTermination(-1, _evicted(status), is_lost=True)
    if reason.startswith(NODE_REFUSED):
        return PodTermination(-1, join_reason("its node refused it", reason, message), is_lost=True)
    disruption = DISRUPTIONS.get(str(condition(pod, "DisruptionTarget").get("reason")), "")
    if not disruption and "deletionTimestamp" in pod["metadata"]:
        disruption = f"{POD_DELETED} before it started"
    lost = PodTermination(
        -1, disruption or join_reason("it never started", reason, message), is_lost=True
    )
    return lost if disruption else _failed_before(pod) or lost


def _failed_before(pod: Object) -> PodTermination | None:
    """The termination if an init container failed."""
    for each in parts(part(pod, "status"), "initContainerStatuses"):
        name, ended = str(each.get("name")), part(each, "state", "terminated")
        code = int(ended.get("exitCode") or 0)
        if code and name == code_init_container.NAME and not is_external_pod(pod):
            reason = join_reason("could not fetch the shipped code", ended.get("message"))
            is_transient = code == code_init_container.TRY_LATER
            return PodTermination(
                CANNOT_RUN, f"{reason}; {code_init_container.HINT}", is_retriable=is_transient
            )
        if code:
            return PodTermination(code, f"its init container {shown(name)} exited with code {code}")
    return None


def _ended_by_itself(pod: Object, code: int, *, reported: str) -> PodTermination:
    """The termination of a pod that rota did not stop."""
    why = str(condition(pod, "DisruptionTarget").get("reason") or "")
    if why in EXTERNAL_DISRUPTIONS:
        return PodTermination(-1, DISRUPTIONS[why], is_lost=True)
    if part(pod, "status").get("reason") == EVICTED:
        return PodTermination(code, _evicted(part(pod, "status")), is_retriable=True)
    if why in DISRUPTIONS and code:
        return PodTermination(code, DISRUPTIONS[why], is_retriable=True)
    is_deleted = "deletionTimestamp" in pod["metadata"]
    if is_deleted and code >= FIRST_SIGNAL_CODE:
        return PodTermination(code, POD_DELETED, is_retriable=True)
    if is_deleted and _was_deleted_first(pod):
        # It handled SIGTERM and exited with its own code: a torchrun agent with 1, many programs
        # with 0, although they are not done.
        return PodTermination(
            STOPPED_CODE, f"{POD_DELETED}, and it exited with code {code}", is_retriable=True
        )
    if code > FIRST_SIGNAL_CODE:
        return PodTermination(
            code, join_reason(f"ended by {_signal(code - FIRST_SIGNAL_CODE)}", reported)
        )
    return PodTermination(code, reported if code else "")


def _evicted(status: Object) -> str:
    """The node ran short of memory or disk, possibly because of this pod."""
    return join_reason("evicted by its node", status.get("message"))


def _was_deleted_first(pod: Object) -> bool:
    """Whether the pod was deleted before its container ended. The two times are from different
    clocks."""
    meta = pod["metadata"]
    grace_s = float(meta.get("deletionGracePeriodSeconds") or 0)
    deleted_s = timestamp_s(str(meta["deletionTimestamp"]).encode()) - grace_s
    ended = part(container(pod), "state", "terminated").get("finishedAt")
    return ended is None or timestamp_s(str(ended).encode()) >= deleted_s


def _cannot_run(message: str) -> PodTermination:
    is_missing = "not found" in message or "no such file" in message
    plain = message.rpartition("exec: ")[2] or message
    return PodTermination(
        NOT_FOUND if is_missing else CANNOT_RUN, join_reason("cannot be run", plain)
    )


def _succeeded(pod: Object) -> bool:
    return part(pod, "status").get("phase") == "Succeeded"


def _limit(pod: Object) -> str:
    containers = parts(part(pod, "spec"), "containers")
    limits = part(containers[0], "resources", "limits") if containers else {}
    return f": the limit is {shown(str(limits['memory']))}" if "memory" in limits else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def join_reason(*fragments: Any) -> str:
    """Join the parts that are not empty with colons."""
    return shown(": ".join(str(each).strip() for each in fragments if each), REASON_CHARS)
