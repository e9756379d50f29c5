"""What a pod's end means, and what keeps one from beginning, in words. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from rota.engines.kubernetes.bodies import KILL_GRACE_S, condition, container, has_run
from rota.engines.kubernetes.log_lines import seconds
from rota.engines.kubernetes.objects import Object, part, parts
from rota.engines.words import OUT_OF_MEMORY
from rota.errors import shown

STOPPED_CODE, KILLED_CODE = 143, 137
CANNOT_RUN, NOT_FOUND = 126, 127
FIRST_SIGNAL_CODE = 128
WORDS = 300
"""Characters of a cluster's explanation that are passed on."""
NEVER_STARTED = "stopped before it started"
BY_SOMEBODY = "somebody deleted its pod"

DISRUPTIONS = {
    "PreemptionByScheduler": "the cluster's scheduler gave its place to a pod of higher priority",
    "EvictionByEvictionAPI": "its pod was evicted",
    "DeletionByTaintManager": "its node was tainted, and the cluster took its pods off",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it",
}
TAKEN = frozenset(DISRUPTIONS) - {"TerminationByKubelet"}
"""The cluster took it away, and not for anything that it did: whatever it ended with, it is lost.
A node that ends a pod may have run out of what that pod used up."""
NODE_REFUSED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Preempting", "NodePorts")
"""How the reason begins when a node would not take a pod that was bound to it."""

IMAGE = "is the image's name right, and may the cluster pull it? a private one needs a pull secret"
CONFIG = "a secret, a config map or a volume that the job names is not there as it says"
VOLUME = "does the claim exist in this namespace, and can its storage class give it a volume?"
STUCK = {
    "ErrImagePull": ("its image cannot be pulled", IMAGE),
    "ImagePullBackOff": ("its image cannot be pulled", IMAGE),
    "InvalidImageName": ("its image has a name that cannot be", IMAGE),
    "ErrImageNeverPull": ("its image is not on the node, and may not be pulled", IMAGE),
    "ImageInspectError": ("its image cannot be read", IMAGE),
    "RegistryUnavailable": ("its image's registry does not answer", IMAGE),
    "SignatureValidationFailed": ("its image is not signed as it should be", IMAGE),
    "CreateContainerConfigError": ("its container cannot be made as described", CONFIG),
    "CreateContainerError": ("its container cannot be made", CONFIG),
    "RunContainerError": ("its container cannot be started", CONFIG),
}
VOLUME_WORDS = ("persistentvolumeclaim", "volume")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended; `is_lost`: nobody knows, or it never had a chance."""

    code: int
    reason: str = ""
    is_lost: bool = False
    is_retriable: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What we asked for: nothing, a stop or a kill."""

    is_stopped: bool = False
    is_doomed: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a pod from starting. A `race` is lost to others and ends soon; anything else is
    given the time that it may take to be put right. What is unclear may be no trouble at all."""

    words: str
    hint: str = ""
    is_race: bool = False
    is_unclear: bool = False


def ending_of(pod: Object, wish: Wish) -> Ending:
    """Of a pod that is over."""
    status = part(pod, "status")
    ended = part(container(pod), "state", "terminated")
    if not has_run(pod):
        return _never_ran(pod, wish, ended=ended)
    if not ended and not _succeeded(pod):
        return vanished(wish)
    meta, code = pod["metadata"], int(ended.get("exitCode", 0))
    is_killed = wish.is_doomed or meta.get("deletionGracePeriodSeconds") == KILL_GRACE_S
    if is_killed and code == STOPPED_CODE:
        # It heard the stop that goes before a kill.
        code = KILLED_CODE
    if ended.get("reason") == "OOMKilled":
        return Ending(KILLED_CODE, f"{OUT_OF_MEMORY}{_limit(pod)}")
    if wish.is_doomed:
        return Ending(code)
    if wish.is_stopped:
        late = "did not end within its grace period and was killed"
        return Ending(code, late if code == KILLED_CODE and not is_killed else "")
    return _of_its_own(pod, code, said=_joined(status.get("reason"), status.get("message")))


def vanished(wish: Wish) -> Ending:
    """Of a pod whose object went away before its end was seen."""
    if wish.is_doomed:
        return Ending(KILLED_CODE)
    if wish.is_stopped:
        return Ending(STOPPED_CODE)
    return Ending(-1, f"{BY_SOMEBODY}, or its node is gone", is_lost=True)


def unborn(wish: Wish) -> Ending:
    return Ending(KILLED_CODE if wish.is_doomed else STOPPED_CODE, NEVER_STARTED)


def trouble_of(pod: Object) -> Trouble | None:
    """What keeps a pod that waits from starting, if something does."""
    bound = condition(pod, "PodScheduled")
    if bound.get("status") == "False" and bound.get("reason") == "Unschedulable":
        said = shown(str(bound.get("message") or "it fits nowhere"), WORDS)
        if any(word in said.lower() for word in VOLUME_WORDS):
            return Trouble(f"its volume cannot be had: {said}", VOLUME)
        return Trouble(f"the cluster's scheduler could not place it: {said}", is_race=True)
    waiting = part(container(pod), "state", "waiting")
    words = STUCK.get(str(waiting.get("reason")))
    if words is None:
        return None
    what, hint = words
    return Trouble(_joined(what, waiting.get("message")), hint)


def _never_ran(pod: Object, wish: Wish, *, ended: Object) -> Ending:
    status = part(pod, "status")
    reason, message = str(status.get("reason") or ""), status.get("message")
    if wish.is_doomed or wish.is_stopped:
        return unborn(wish)
    if ended.get("reason") in ("StartError", "ContainerCannotRun", "RunContainerError"):
        return _cannot_run(str(ended.get("message") or ended["reason"]))
    if reason.startswith(NODE_REFUSED):
        return Ending(-1, _joined("its node refused it", reason, message), is_lost=True)
    disruption = DISRUPTIONS.get(str(condition(pod, "DisruptionTarget").get("reason")), "")
    if not disruption and "deletionTimestamp" in pod["metadata"]:
        disruption = f"{BY_SOMEBODY} before it started"
    return Ending(-1, disruption or _joined("it never started", reason, message), is_lost=True)


def _of_its_own(pod: Object, code: int, *, said: str) -> Ending:
    """Nobody of us asked for it."""
    why = str(condition(pod, "DisruptionTarget").get("reason") or "")
    if why in TAKEN:
        return Ending(-1, DISRUPTIONS[why], is_lost=True)
    if said.startswith("Evicted"):
        return Ending(code, f"evicted by its node: {said.removeprefix('Evicted: ')}", False, True)
    if why in DISRUPTIONS and code:
        return Ending(code, DISRUPTIONS[why], is_retriable=True)
    if code and _was_deleted_first(pod):
        if code >= FIRST_SIGNAL_CODE:
            return Ending(code, BY_SOMEBODY, is_retriable=True)
        # It heard the signal, and gave up in its own way: an agent of torchrun ends with 1.
        return Ending(STOPPED_CODE, f"{BY_SOMEBODY}, and it ended with {code}", is_retriable=True)
    if code > FIRST_SIGNAL_CODE:
        return Ending(code, f"ended by {_signal(code - FIRST_SIGNAL_CODE)}")
    return Ending(code, said if code else "")


def _was_deleted_first(pod: Object) -> bool:
    """Whether somebody asked for its end before it came, as far as the cluster tells."""
    meta = pod["metadata"]
    if "deletionTimestamp" not in meta:
        return False
    grace_s = float(meta.get("deletionGracePeriodSeconds") or 0)
    asked_s = seconds(str(meta["deletionTimestamp"]).encode()) - grace_s
    ended = part(container(pod), "state", "terminated").get("finishedAt")
    return ended is None or seconds(str(ended).encode()) >= asked_s


def _cannot_run(said: str) -> Ending:
    is_missing = "not found" in said or "no such file" in said
    plain = said.rpartition("exec: ")[2] or said
    return Ending(NOT_FOUND if is_missing else CANNOT_RUN, _joined("cannot be run", plain))


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


def _joined(*words: Any) -> str:
    return shown(": ".join(str(each).strip() for each in words if each), WORDS)
