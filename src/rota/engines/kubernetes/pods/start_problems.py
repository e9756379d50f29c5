"""What keeps a pod from starting, from its status and from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from rota.engines.kubernetes.pods.state import condition, container
from rota.engines.kubernetes.pods.termination import REASON_CHARS, join_reason
from rota.errors import shown
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.resources import EVENTS, Object, ResourceScope, part, parts

log = structlog.get_logger()

IMAGE_HELP = "check the image name; a private image needs a pull secret"
CONFIG_HELP = "check that the secrets, config maps and volumes of the job exist"
PROGRAM_HELP = "check that the image has the program"
VOLUME_HELP = (
    "check that the claim exists in this namespace and that its storage class provides volumes"
)
MOUNT_HELP = "check that the claim, file server or folder exists and that the node may mount it"
NODE_HELP = "this is a problem of the node: tell the cluster's administrator, or cordon the node"
WAITING_PROBLEMS = {
    "ErrImagePull": ("its image cannot be pulled", IMAGE_HELP),
    "ImagePullBackOff": ("its image cannot be pulled", IMAGE_HELP),
    "InvalidImageName": ("its image has an invalid name", IMAGE_HELP),
    "ErrImageNeverPull": ("its image is not on the node and must not be pulled", IMAGE_HELP),
    "ImageInspectError": ("its image cannot be read", IMAGE_HELP),
    "RegistryUnavailable": ("the registry of its image does not respond", IMAGE_HELP),
    "SignatureValidationFailed": ("the signature of its image is not valid", IMAGE_HELP),
    "CreateContainerConfigError": ("its container has an invalid configuration", CONFIG_HELP),
    "CreateContainerError": ("its container cannot be created", CONFIG_HELP),
    "RunContainerError": ("its container cannot be started", CONFIG_HELP),
    "CrashLoopBackOff": ("its container exits again and again", PROGRAM_HELP),
}
EVENT_PROBLEMS = {
    "FailedMount": ("its volume cannot be mounted", MOUNT_HELP),
    "FailedAttachVolume": ("its volume cannot be attached to its node", MOUNT_HELP),
    "FailedMapVolume": ("its volume is not available on its node", MOUNT_HELP),
    "FailedCreatePodSandBox": ("its node cannot create its pod sandbox", NODE_HELP),
    "FailedCreatePodContainer": ("its node cannot create its pod sandbox", NODE_HELP),
    "FailedKillPod": ("its node cannot start it", NODE_HELP),
    "FailedPrepareDynamicResources": (
        "its node cannot provide the devices that it claims",
        CONFIG_HELP,
    ),
}
UNSCHEDULED_REASONS = ("Unschedulable", "SchedulerError")
VOLUME_WORDS = ("volume", "pvc", "storage")
VOLUME_ERRORS_ON_ANY_NODE = (
    "not found",
    "unbound immediate",
    "being deleted",
    "non-existent",
    "binding volumes",
)
"""Parts of messages about a claim that fails on every node. Other messages about volumes concern
one node: another node may have space for the volume, or access to it."""


@dataclass(frozen=True, slots=True)
class StartProblem:
    """Why a pod does not start.

    `is_race`: other pods took the resources; give up soon. `is_refusal`: the same node would
    fail again. `is_unclear`: there may be no problem. `is_outage`: the cluster itself fails. All
    other problems get more time: a user or an administrator may fix them.
    """

    message: str
    hint: str = ""
    is_race: bool = False
    is_unclear: bool = False
    is_outage: bool = False
    is_refusal: bool = False

    @property
    def is_transient(self) -> bool:
        """Whether the same job may start next time."""
        return self.is_race or self.is_outage


def start_problem_of(pod: Object) -> StartProblem | None:
    """The problem of a waiting pod, if it has one."""
    bound = condition(pod, "PodScheduled")
    if bound.get("status") == "False" and bound.get("reason") in UNSCHEDULED_REASONS:
        reported = shown(str(bound.get("message") or "no node fits"), REASON_CHARS)
        is_of_volume = _mentions(reported, VOLUME_WORDS)
        if is_of_volume and _mentions(reported, VOLUME_ERRORS_ON_ANY_NODE):
            return StartProblem(f"its volume is not available: {reported}", VOLUME_HELP)
        message = f"the cluster's scheduler could not place it: {reported}"
        return StartProblem(message, is_race=True, is_refusal=is_of_volume)
    for each in (*parts(part(pod, "status"), "initContainerStatuses"), container(pod)):
        waiting = part(each, "state", "waiting")
        known = WAITING_PROBLEMS.get(str(waiting.get("reason")))
        if known is not None:
            what, hint = known
            last = part(each, "lastState", "terminated").get("message")
            return StartProblem(join_reason(what, last or waiting.get("message")), hint)
    return None


def _mentions(text: str, words: tuple[str, ...]) -> bool:
    return any(each in text.lower() for each in words)


async def problem_from_events(client: KubeClient, uid: str) -> StartProblem | None:
    """The newest event about a pod, if it explains why the pod does not start."""
    scope = ResourceScope(client.namespace, fields=f"involvedObject.uid={uid}")
    try:
        events, _ = await client.list(EVENTS, scope)
    except ApiError as error:
        log.warning("pod events not read", error=str(error))
        return None
    return newest_problem(events)


def newest_problem(events: Iterable[Object]) -> StartProblem | None:
    """Only the newest event counts: a volume that failed before an image is pulled is mounted
    now."""
    newest = max(events, key=_event_order, default=Object())
    known = EVENT_PROBLEMS.get(str(newest.get("reason")))
    if known is None:
        return None
    what, hint = known
    return StartProblem(
        f"{what}: {shown(str(newest.get('message') or 'no reason given'), REASON_CHARS)}", hint
    )


def _event_order(event: Object) -> tuple[str, bool]:
    """To the second, which is the precision that all events have. In the same second, a Normal
    event counts as later."""
    series = part(event, "series").get("lastObservedTime")
    moment = str(series or event.get("lastTimestamp") or event.get("eventTime") or "")[:19]
    return moment, event.get("type") == "Normal"
