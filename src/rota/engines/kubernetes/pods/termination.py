"""What a pod's end means, and what keeps one from beginning, in words. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from rota.engines.kubernetes import fetching
from rota.engines.kubernetes.bodies import KILL_GRACE_S, condition, container, has_run
from rota.engines.kubernetes.log_lines import seconds
from rota.engines.kubernetes.names import is_left_to_us
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
EVICTED = "Evicted"
NODE_REFUSED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Preempting", "NodePorts")
"""How the reason begins when a node would not take a pod that was bound to it."""

IMAGE = "is the image's name right, and may the cluster pull it? a private one needs a pull secret"
CONFIG = "a secret, a config map or a volume that the job names is not there as it says"
PROGRAM = "does the image have what it is to run?"
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
    "CrashLoopBackOff": ("its container ends as soon as it begins", PROGRAM),
}
UNPLACED = ("Unschedulable", "SchedulerError")
VOLUME_WORDS = ("volume", "pvc", "storage")
NO_NODE_MENDS = (
    "not found",
    "unbound immediate",
    "being deleted",
    "non-existent",
    "binding volumes",
)
"""What is said of a claim that is wrong wherever its pod goes. Any other word about volumes is
about this node alone: another one may have room for them, or be where they are."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended; `is_lost`: nobody knows, or it never had a chance. One that is lost
    `is_refused` if its node could not have it, and another one may."""

    code: int
    reason: str = ""
    is_lost: bool = False
    is_retriable: bool = False
    is_refused: bool = False


NODE_GONE = Ending(-1, "its node is gone", is_lost=True)
ASTRAY = Ending(-1, "somebody opened its pod's gate before its turn came", is_lost=True)
CARD_GONE = Ending(-1, "the pod that held its card is gone", is_lost=True)


@dataclass(frozen=True, slots=True)
class Wish:
    """What we asked for: nothing, a stop or a kill."""

    is_stopped: bool = False
    is_doomed: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a pod from starting. A `race` is lost to others and ends soon, a `refusal` is one
    that this node would lose again; anything else is given the time that it may take to be put
    right. What is unclear may be no trouble at all; an outage is the cluster's own."""

    words: str
    hint: str = ""
    is_race: bool = False
    is_unclear: bool = False
    is_outage: bool = False
    is_refusal: bool = False

    @property
    def is_nobodys(self) -> bool:
        """Whether the same job may well start the next time."""
        return self.is_race or self.is_outage


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
    if bound.get("status") == "False" and bound.get("reason") in UNPLACED:
        said = shown(str(bound.get("message") or "it fits nowhere"), WORDS)
        is_of_volume = _says(said, VOLUME_WORDS)
        if is_of_volume and _says(said, NO_NODE_MENDS):
            return Trouble(f"its volume cannot be had: {said}", VOLUME)
        words = f"the cluster's scheduler could not place it: {said}"
        return Trouble(words, is_race=True, is_refusal=is_of_volume)
    for each in (*parts(part(pod, "status"), "initContainerStatuses"), container(pod)):
        waiting = part(each, "state", "waiting")
        words = STUCK.get(str(waiting.get("reason")))
        if words is not None:
            what, hint = words
            last = part(each, "lastState", "terminated").get("message")
            return Trouble(_joined(what, last or waiting.get("message")), hint)
    return None


def _says(said: str, words: tuple[str, ...]) -> bool:
    return any(each in said.lower() for each in words)


def _never_ran(pod: Object, wish: Wish, *, ended: Object) -> Ending:
    status = part(pod, "status")
    reason, message = str(status.get("reason") or ""), status.get("message")
    if wish.is_doomed or wish.is_stopped:
        return unborn(wish)
    if ended.get("reason") in ("StartError", "ContainerCannotRun", "RunContainerError"):
        return _cannot_run(str(ended.get("message") or ended["reason"]))
    if reason == EVICTED:
        return Ending(-1, _evicted(status), is_lost=True)
    if reason.startswith(NODE_REFUSED):
        return Ending(-1, _joined("its node refused it", reason, message), is_lost=True)
    disruption = DISRUPTIONS.get(str(condition(pod, "DisruptionTarget").get("reason")), "")
    if not disruption and "deletionTimestamp" in pod["metadata"]:
        disruption = f"{BY_SOMEBODY} before it started"
    lost = Ending(-1, disruption or _joined("it never started", reason, message), is_lost=True)
    return lost if disruption else _failed_before(pod) or lost


def _failed_before(pod: Object) -> Ending | None:
    """Of a container that was to run before the worker's own."""
    for each in parts(part(pod, "status"), "initContainerStatuses"):
        name, ended = str(each.get("name")), part(each, "state", "terminated")
        code = int(ended.get("exitCode") or 0)
        if code and name == fetching.NAME and not is_left_to_us(pod):
            words = _joined("what was shipped with it could not be fetched", ended.get("message"))
            is_passing = code == fetching.NOT_NOW
            return Ending(CANNOT_RUN, f"{words}; {fetching.HINT}", is_retriable=is_passing)
        if code:
            return Ending(code, f"its init container {shown(name)} ended with {code}")
    return None


def _of_its_own(pod: Object, code: int, *, said: str) -> Ending:
    """Nobody of us asked for it."""
    why = str(condition(pod, "DisruptionTarget").get("reason") or "")
    if why in TAKEN:
        return Ending(-1, DISRUPTIONS[why], is_lost=True)
    if part(pod, "status").get("reason") == EVICTED:
        return Ending(code, _evicted(part(pod, "status")), is_retriable=True)
    if why in DISRUPTIONS and code:
        return Ending(code, DISRUPTIONS[why], is_retriable=True)
    is_deleted = "deletionTimestamp" in pod["metadata"]
    if is_deleted and code >= FIRST_SIGNAL_CODE:
        return Ending(code, BY_SOMEBODY, is_retriable=True)
    if is_deleted and _was_deleted_first(pod):
        # It heard the signal, and gave up in its own way: an agent of torchrun ends with 1, and
        # many a program with 0, however much is left to do.
        return Ending(STOPPED_CODE, f"{BY_SOMEBODY}, and it ended with {code}", is_retriable=True)
    if code > FIRST_SIGNAL_CODE:
        return Ending(code, _joined(f"ended by {_signal(code - FIRST_SIGNAL_CODE)}", said))
    return Ending(code, said if code else "")


def _evicted(status: Object) -> str:
    """Its node was short of memory or disk, which may be this pod's own doing."""
    return _joined("evicted by its node", status.get("message"))


def _was_deleted_first(pod: Object) -> bool:
    """Whether somebody asked for its end before it came, as far as clocks tell: the end is of its
    node's."""
    meta = pod["metadata"]
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
