"""Why a pod is not made although it has a node: its status does not say, events about it do."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from rota.engines.kubernetes.api import EVENTS, ApiError, Cluster, Object, Scope
from rota.engines.kubernetes.endings import CONFIG, WORDS, Trouble
from rota.engines.kubernetes.objects import part
from rota.errors import shown

log = structlog.get_logger()

MOUNT = "is the claim, the file server or the folder there, and may the node mount it?"
NODE = "that is the node's trouble: tell whoever runs the cluster, or cordon it"
UNMADE = {
    "FailedMount": ("its volume cannot be mounted", MOUNT),
    "FailedAttachVolume": ("its volume cannot be attached to its node", MOUNT),
    "FailedMapVolume": ("its volume cannot be had on its node", MOUNT),
    "FailedCreatePodSandBox": ("its node cannot make a place for it", NODE),
    "FailedCreatePodContainer": ("its node cannot make a place for it", NODE),
    "FailedKillPod": ("its node cannot begin with it", NODE),
    "FailedPrepareDynamicResources": ("its node cannot give it what it claims", CONFIG),
}


async def why_unmade(cluster: Cluster, uid: str) -> Trouble | None:
    """What was last said of a pod, if that is why it does not start."""
    scope = Scope(cluster.namespace, fields=f"involvedObject.uid={uid}")
    try:
        told, _ = await cluster.list(EVENTS, scope)
    except ApiError as error:
        log.warning("events about a pod cannot be read", error=str(error))
        return None
    return trouble_in(told)


def trouble_in(events: Iterable[Object]) -> Trouble | None:
    """What came last counts: before an image is pulled, all volumes are mounted."""
    newest = max(events, key=_order, default=Object())
    words = UNMADE.get(str(newest.get("reason")))
    if words is None:
        return None
    what, hint = words
    return Trouble(f"{what}: {shown(str(newest.get('message') or 'no reason given'), WORDS)}", hint)


def _order(event: Object) -> tuple[str, bool]:
    """To the second, which is what all of them tell. Of two in one, what went well came later."""
    series = part(event, "series").get("lastObservedTime")
    moment = str(series or event.get("lastTimestamp") or event.get("eventTime") or "")[:19]
    return moment, event.get("type") == "Normal"
