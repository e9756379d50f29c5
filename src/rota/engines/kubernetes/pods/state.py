"""The state of a worker's pod, reduced to what the engine needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rota.core.model.node import DEFAULT_TOLERATIONS
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.nodes.taints import toleration_keys
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.requests import PodRequests, requests_of
from rota.kube.resources import Object, part, parts

KILL_GRACE_S = 1
"""A pod deleted with this grace was killed; a stop has a longer grace."""


MAX_GPUS = 1024
"""Per node. Annotations and nodes may contain any number."""
NEVER_RAN = ("ContainerStatusUnknown", "StartError", "ContainerCannotRun")
"""Termination reasons of containers that never started."""


class PodStage(Enum):
    GATED = "gated"
    """No scheduler may bind it yet."""
    WAITING = "waiting"
    RUNNING = "running"
    OVER = "over"
    """It does not run and never will; its resources are free."""


@dataclass(frozen=True, slots=True)
class PodState:
    worker: WorkerId
    name: str
    uid: str
    version: int
    stage: PodStage
    node: str
    """The node that it is bound to; empty before."""
    planned: str
    gpus: tuple[int, ...]
    share_bytes: int
    ip: str
    usage: PodRequests
    is_deleted: bool
    is_killed: bool
    has_finalizer: bool
    """Its object stays until we remove the finalizer."""
    is_holding_node: bool
    """It has ended, but its object still counts against its node."""
    is_gate_bypassed: bool
    """Another client removed its gate: it may run on any node, and does not know its rank 0."""
    container: str = naming.CONTAINER
    is_external: bool = False
    """A user created it, so the user deletes it."""
    tolerations: frozenset[str] = DEFAULT_TOLERATIONS
    """The tolerations of an external pod; those of other pods are in the settings."""
    shared_gpus: tuple[str, ...] = ()
    """The ids of the GPUs that it shares."""
    token_secret: str = ""
    """The name of the Secret with its token."""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Device ids from its node, by resource."""


def pod_state_of(pod: Object, worker: WorkerId) -> PodState:
    meta, status = pod["metadata"], part(pod, "status")
    notes = part(meta, "annotations")
    is_deleted = "deletionTimestamp" in meta
    is_external = naming.is_external_pod(pod)
    return PodState(
        worker=worker,
        name=meta["name"],
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        stage=stage_of(pod),
        node=part(pod, "spec").get("nodeName") or "",
        planned=notes.get(naming.NODE, ""),
        gpus=_gpus(pod, is_external=is_external),
        share_bytes=_share_bytes(pod),
        ip=status.get("podIP") or "",
        usage=requests_of(pod, ""),
        is_deleted=is_deleted,
        is_killed=is_deleted and meta.get("deletionGracePeriodSeconds") == KILL_GRACE_S,
        has_finalizer=naming.FINALIZER in (meta.get("finalizers") or ()),
        is_holding_node=_is_holding_node(pod),
        is_gate_bypassed=_is_gate_bypassed(pod),
        container=_main_container(pod),
        is_external=is_external,
        tolerations=toleration_keys(parts(part(pod, "spec"), "tolerations"))
        if is_external
        else DEFAULT_TOLERATIONS,
        shared_gpus=tuple(filter(None, notes.get(naming.SHARED_GPUS, "").split(","))),
        devices=_devices(pod),
        token_secret=naming.token_secret(pod),
    )


def stage_of(pod: Object) -> PodStage:
    meta, spec = pod["metadata"], part(pod, "spec")
    phase = part(pod, "status").get("phase")
    if phase in ("Succeeded", "Failed"):
        return PodStage.OVER
    if meta.get("deletionGracePeriodSeconds") == 0:
        # It was never bound and cannot be bound any more; or its node or a forced delete has
        # released it, and only our finalizer keeps its object.
        return PodStage.OVER
    if phase == "Running":
        return PodStage.RUNNING
    return PodStage.GATED if spec.get("schedulingGates") else PodStage.WAITING


def _is_holding_node(pod: Object) -> bool:
    has_ended = part(pod, "status").get("phase") in ("Succeeded", "Failed")
    is_bound = bool(part(pod, "spec").get("nodeName"))
    return stage_of(pod) is PodStage.OVER and is_bound and not has_ended


def _is_gate_bypassed(pod: Object) -> bool:
    spec = part(pod, "spec")
    return (
        not naming.is_external_pod(pod)
        and not spec.get("schedulingGates")
        and not spec.get("affinity")
    )


def container(pod: Object) -> Object:
    """The status of the worker's container; empty before a node has accepted the pod."""
    statuses = parts(part(pod, "status"), "containerStatuses")
    return next((each for each in statuses if each.get("name") == _main_container(pod)), Object())


def _devices(pod: Object) -> dict[str, tuple[str, ...]]:
    """By resource. Nodes before Kubernetes 1.36 do not report them."""
    given = parts(container(pod), "allocatedResourcesStatus")
    return {
        str(each.get("name")): tuple(str(one["resourceID"]) for one in parts(each, "resources"))
        for each in given
    }


def _main_container(pod: Object) -> str:
    """The name of the container that counts. In an external pod: a failed one, else the first."""
    if not naming.is_external_pod(pod):
        return naming.CONTAINER
    statuses = parts(part(pod, "status"), "containerStatuses")
    failed = [each for each in statuses if part(each, "state", "terminated").get("exitCode")]
    first = [*failed, *parts(part(pod, "spec"), "containers"), {"name": ""}][0]
    return str(first["name"])


def has_run(pod: Object) -> bool:
    """Whether its program was started, as far as the node knows."""
    ended = part(container(pod), "state", "terminated")
    has_ended = bool(ended) and ended.get("reason") not in NEVER_RAN
    return has_ended or part(pod, "status").get("phase") in ("Running", "Succeeded")


def condition(whole: Object, name: str) -> Object:
    """The condition of this type, of a pod or a node."""
    conditions = parts(part(whole, "status"), "conditions")
    return next((each for each in conditions if each.get("type") == name), Object())


def numbers(text: str) -> tuple[int, ...]:
    """Parses `0,3`. Empty if the text is not valid: users may edit it."""
    try:
        return tuple(int(each) for each in text.split(",") if each)
    except ValueError:
        return ()


def indices(text: str) -> tuple[int, ...]:
    """GPU indices that a node can have."""
    return tuple(each for each in numbers(text) if 0 <= each < MAX_GPUS)


def _gpus(pod: Object, *, is_external: bool) -> tuple[int, ...]:
    """Our own pods carry the indices in their environment, which users cannot edit. External pods
    carry them only in an annotation, which our admission policy protects."""
    noted = part(pod, "metadata", "annotations").get(naming.GPUS, "")
    value = None if is_external else naming.container_env(pod).get(naming.GPUS_VARIABLE)
    return indices(noted if value is None else value)


def _share_bytes(pod: Object) -> int:
    """As set at creation, even if the annotation was edited."""
    env, notes = naming.container_env(pod), part(pod, "metadata", "annotations")
    is_created_by_us = naming.GPUS_VARIABLE in env and not naming.is_external_pod(pod)
    text = env.get(naming.SHARE_VARIABLE) if is_created_by_us else notes.get(naming.SHARE)
    return next(iter(numbers(text or "")), 0)
