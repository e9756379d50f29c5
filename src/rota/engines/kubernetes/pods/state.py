"""A worker's pod, boiled down to what an engine needs to know of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rota.core.taints import USUAL
from rota.engines.base import LogLimits, WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.objects import Object, part, parts
from rota.engines.kubernetes.taints import spelled
from rota.engines.kubernetes.usage import Usage, usage_of

KILL_GRACE_S = 1
"""A pod that is deleted with this grace was killed; a stop gives longer."""


MOST_GPUS = 1024
"""Of one node. Somebody may write anything into a pod or a node."""
NEVER_RAN = ("ContainerStatusUnknown", "StartError", "ContainerCannotRun")
"""Reasons of an end without a beginning."""


class Stage(Enum):
    GATED = "gated"
    """Nobody may bind it yet."""
    WAITING = "waiting"
    RUNNING = "running"
    OVER = "over"
    """Nothing of it runs, and nothing ever will: what it held is free."""


@dataclass(frozen=True, slots=True)
class Body:
    worker: WorkerId
    name: str
    uid: str
    version: int
    stage: Stage
    node: str
    """Where it was bound to; empty before."""
    planned: str
    gpus: tuple[int, ...]
    share_bytes: int
    ip: str
    usage: Usage
    log: LogLimits
    is_deleted: bool
    is_killed: bool
    is_held: bool
    """Its object outlives it until we let go."""
    is_in_the_way: bool
    """Its object still counts as something that uses its node, although it is over."""
    is_astray: bool
    """Somebody else opened its gate: it may be anywhere, and knows nothing of the others."""
    container: str = names.CONTAINER
    is_plain: bool = False
    """Somebody made it themselves: it is theirs to remove."""
    tolerations: frozenset[str] = USUAL
    """What such a one tolerates; for all others, the settings say it."""
    card: str = ""
    """The one that it shares with others."""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Those that its node gave it, by resource."""


def body_of(pod: Object, worker: WorkerId) -> Body:
    meta, status = pod["metadata"], part(pod, "status")
    notes = part(meta, "annotations")
    is_deleted = "deletionTimestamp" in meta
    is_plain = names.is_left_to_us(pod)
    return Body(
        worker=worker,
        name=meta["name"],
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        stage=stage_of(pod),
        node=part(pod, "spec").get("nodeName") or "",
        planned=notes.get(names.NODE, ""),
        gpus=_gpus(pod, is_plain=is_plain),
        share_bytes=_share_bytes(pod),
        ip=status.get("podIP") or "",
        usage=usage_of(pod, ""),
        log=_log_limits(notes.get(names.LOG, "")),
        is_deleted=is_deleted,
        is_killed=is_deleted and meta.get("deletionGracePeriodSeconds") == KILL_GRACE_S,
        is_held=names.FINALIZER in (meta.get("finalizers") or ()),
        is_in_the_way=_is_in_the_way(pod),
        is_astray=_is_astray(pod),
        container=_main(pod),
        is_plain=is_plain,
        tolerations=spelled(parts(part(pod, "spec"), "tolerations")) if is_plain else USUAL,
        card=notes.get(names.CARD, ""),
        devices=_devices(pod),
    )


def stage_of(pod: Object) -> Stage:
    meta, spec = pod["metadata"], part(pod, "spec")
    phase = part(pod, "status").get("phase")
    if phase in ("Succeeded", "Failed"):
        return Stage.OVER
    if meta.get("deletionGracePeriodSeconds") == 0:
        # It was never bound, and nobody may bind it any more; or its node, or somebody who forced
        # it, has let go of it, and only we still hold its object.
        return Stage.OVER
    if phase == "Running":
        return Stage.RUNNING
    return Stage.GATED if spec.get("schedulingGates") else Stage.WAITING


def _is_in_the_way(pod: Object) -> bool:
    has_ended = part(pod, "status").get("phase") in ("Succeeded", "Failed")
    is_bound = bool(part(pod, "spec").get("nodeName"))
    return stage_of(pod) is Stage.OVER and is_bound and not has_ended


def _is_astray(pod: Object) -> bool:
    spec = part(pod, "spec")
    return (
        not names.is_left_to_us(pod)
        and not spec.get("schedulingGates")
        and not spec.get("affinity")
    )


def container(pod: Object) -> Object:
    """What is known of the worker's container; nothing before a node takes it."""
    told = parts(part(pod, "status"), "containerStatuses")
    return next((each for each in told if each.get("name") == _main(pod)), Object())


def _devices(pod: Object) -> dict[str, tuple[str, ...]]:
    """By resource. Nodes of Kubernetes before 1.36 do not tell."""
    given = parts(container(pod), "allocatedResourcesStatus")
    return {
        str(each.get("name")): tuple(str(one["resourceID"]) for one in parts(each, "resources"))
        for each in given
    }


def _main(pod: Object) -> str:
    """The container that counts. In a pod that people made themselves: the first, unless another
    one failed."""
    if not names.is_left_to_us(pod):
        return names.CONTAINER
    told = parts(part(pod, "status"), "containerStatuses")
    failed = [each for each in told if part(each, "state", "terminated").get("exitCode")]
    first = [*failed, *parts(part(pod, "spec"), "containers"), {"name": ""}][0]
    return str(first["name"])


def has_run(pod: Object) -> bool:
    """Whether its program was started, as far as the node knows."""
    ended = part(container(pod), "state", "terminated")
    has_ended = bool(ended) and ended.get("reason") not in NEVER_RAN
    return has_ended or part(pod, "status").get("phase") in ("Running", "Succeeded")


def condition(whole: Object, name: str) -> Object:
    """Of a pod or a node."""
    told = parts(part(whole, "status"), "conditions")
    return next((each for each in told if each.get("type") == name), Object())


def numbers(text: str) -> tuple[int, ...]:
    """`0,3`. Somebody may have edited it by hand: then nothing."""
    try:
        return tuple(int(each) for each in text.split(",") if each)
    except ValueError:
        return ()


def indices(text: str) -> tuple[int, ...]:
    """Of GPUs, as far as a node can have them."""
    return tuple(each for each in numbers(text) if 0 <= each < MOST_GPUS)


def _gpus(pod: Object, *, is_plain: bool) -> tuple[int, ...]:
    """A pod of our making says itself which it was made for, whatever somebody has edited since:
    its order has the same fence, and so the same slots, whoever gives it. Of a pod that people made
    themselves nothing but the note says it, which a policy of ours keeps them from editing."""
    noted = part(pod, "metadata", "annotations").get(names.GPUS, "")
    told = None if is_plain else names.told(pod).get(names.GPUS_VARIABLE)
    return indices(noted if told is None else told)


def _share_bytes(pod: Object) -> int:
    """As it was made, whatever somebody has edited since: a card is held for who shares it."""
    told, notes = names.told(pod), part(pod, "metadata", "annotations")
    is_made_by_us = names.GPUS_VARIABLE in told and not names.is_left_to_us(pod)
    text = told.get(names.SHARE_VARIABLE) if is_made_by_us else notes.get(names.SHARE)
    return next(iter(numbers(text or "")), 0)


def _log_limits(text: str) -> LogLimits:
    sizes = numbers(text.replace("x", ","))
    return LogLimits(*sizes) if len(sizes) == len(("bytes", "files")) else LogLimits()
