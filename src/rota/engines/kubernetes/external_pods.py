"""Pods that users created with `schedulerName: rota`.

Such a pod is the only worker of a job. rota places it by the fields that it supports, and
refuses a pod with other scheduling fields by name: the default scheduler never looks at such a
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rota.core.model.job import JobId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.nodes.taints import toleration_keys
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.requests import requests_of
from rota.engines.kubernetes.pods.termination import (
    CANNOT_RUN,
    REASON_CHARS,
    PodTermination,
    termination_of_bug,
)
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.errors import UserError, shown
from rota.kube.client import KubeClient
from rota.kube.errors import NOT_FOUND, ApiError
from rota.kube.resources import PODS, PVCS, Object, part, parts

USER, PRIORITY = "user", "priority"
"""Labels with the user and the priority of a pod."""
UNSUPPORTED_FIELDS = ("affinity", "topologySpreadConstraints", "resourceClaims", "schedulingGroup")
SHARED_ACCESS_MODES = ("ReadWriteMany", "ReadOnlyMany")
RUNS_ONCE = "a pod that a user created runs only once"
POD_DELETED = f"its pod was deleted, and {RUNS_ONCE}"


class NotYetError(UserError):
    """The pod needs something that may still appear."""


@dataclass(frozen=True, slots=True)
class ExternalPodRequest:
    """The scheduling request of a pod."""

    user: str
    priority: int
    gpus: int
    cpus: float
    memory_bytes: int
    node_labels: dict[str, str]
    command: list[str]
    claims: tuple[str, ...]
    tolerations: frozenset[str]


def external_pod_request(pod: Object, *, gpu_resource: str) -> ExternalPodRequest:
    """Raises for scheduling fields that rota does not support."""
    spec, labels = part(pod, "spec"), part(pod, "metadata", "labels")
    for name in UNSUPPORTED_FIELDS:
        if spec.get(name):
            raise UserError(f"spec.{name} is not supported", "remove it, or use nodeSelector")
    for container in [*parts(spec, "initContainers"), *parts(spec, "containers")]:
        if any(each.get("hostPort") for each in parts(container, "ports")):
            raise UserError("spec.containers.ports.hostPort is not supported", "remove it")
    for volume in parts(spec, "volumes"):
        if volume.get("ephemeral"):
            what = f"the ephemeral volume {shown(str(volume.get('name')))} is not supported"
            raise UserError(what, "use an existing claim")
    usage = requests_of(pod, gpu_resource)
    first = parts(spec, "containers")[0]
    command = [*(first.get("command") or ()), *(first.get("args") or ())]
    claims = (
        part(each, "persistentVolumeClaim").get("claimName") for each in parts(spec, "volumes")
    )
    return ExternalPodRequest(
        user=str(labels.get(USER) or labels.get(naming.USER) or ""),
        priority=_priority(str(labels.get(PRIORITY) or "0")),
        gpus=usage.gpus,
        cpus=usage.cpus,
        memory_bytes=int(usage.memory_bytes),
        node_labels=dict(part(spec, "nodeSelector")),
        command=[str(each) for each in command] or [f"pod/{pod['metadata']['name']}"],
        claims=tuple(str(each) for each in claims if each),
        tolerations=toleration_keys(parts(spec, "tolerations")),
    )


async def require_mountable(client: KubeClient, claims: tuple[str, ...]) -> None:
    """Raise unless every node can mount the claims: rota does not know where a volume is."""
    for name in claims:
        try:
            claim = await client.get(PVCS, name)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            raise NotYetError(f"the claim {shown(name)} does not exist", "create it") from None
        modes = set(part(claim, "spec").get("accessModes") or ())
        if not modes & set(SHARED_ACCESS_MODES):
            what = f"the claim {shown(name)} cannot be mounted by every node"
            raise UserError(what, "use a claim with ReadWriteMany or ReadOnlyMany")
        if part(claim, "status").get("phase") != "Bound":
            what = f"the claim {shown(name)} is not bound"
            raise NotYetError(what, "use a storage class that binds before the pod has a node")


def is_waiting(pod: Object) -> bool:
    """Whether rota can place the pod now."""
    spec, meta = part(pod, "spec"), part(pod, "metadata")
    is_free = not spec.get("nodeName") and not spec.get("schedulingGates")
    is_deleting = bool(meta.get("deletionTimestamp"))
    return spec.get("schedulerName") == naming.SCHEDULER and is_free and not is_deleting


def placement_metadata(placement: PodPlacement, *, uid: str) -> Object:
    """Labels and annotations that make the pod a worker of ours."""
    worker, slot = placement.worker, placement.slot
    return {
        "labels": {
            naming.MANAGED_BY: "rota",
            naming.JOB: worker.job_id,
            naming.ATTEMPT: str(worker.attempt),
            naming.WORKER: str(worker.worker),
        },
        "annotations": {
            naming.NODE: slot.node,
            naming.GPUS: ",".join(map(str, slot.gpus)),
            naming.PLACED: naming.placed_annotation(worker, uid=uid),
        },
    }


class ExternalPodBinder:
    """Binds external pods. `see` receives a pod of ours, `give_up` a worker that cannot run."""

    def __init__(
        self,
        client: KubeClient,
        pod_tracker: PodTracker,
        *,
        see: Callable[[Object], None],
        give_up: Callable[[WorkerId, PodTermination], None],
    ) -> None:
        self._client, self._pod_tracker = client, pod_tracker
        self._see, self._give_up = see, give_up
        self._uids: dict[JobId, str] = {}
        """The uid of the pod of each job."""

    def know(self, pods: Mapping[JobId, str]) -> None:
        """The pods of jobs as NAME/UID: from the store, which users cannot edit."""
        self._uids |= {job_id: pod.partition("/")[2] for job_id, pod in pods.items()}

    def is_known(self, worker: WorkerId, pod: Object) -> bool:
        """Whether the job has this pod. The annotation of a pod may name any job."""
        return self._uids.get(worker.job_id) == pod["metadata"]["uid"]

    async def launch(self, placement: PodPlacement, pod: str) -> None:
        """Mark the pod before it is bound: after an interruption, its worker is still known."""
        name, _, uid = pod.partition("/")
        self.know({placement.worker.job_id: pod})
        try:
            found = await self._client.get(PODS, name)
            if found["metadata"]["uid"] != uid or found["metadata"].get("deletionTimestamp"):
                self._give_up(placement.worker, PodTermination(CANNOT_RUN, POD_DELETED))
                return
            if part(found, "spec").get("nodeName"):
                self._see_bound(found, placement.worker)
            elif self._is_wanted(placement.worker):
                await self._bind(found, placement)
        except ApiError as error:
            is_gone = error.status == NOT_FOUND
            reason = POD_DELETED if is_gone else f"its pod could not be bound: {error}"
            code = CANNOT_RUN if is_gone else -1
            self._give_up(placement.worker, PodTermination(code, reason, is_lost=not is_gone))
        except Exception as error:
            # Otherwise the job would be starting for ever.
            self._give_up(placement.worker, termination_of_bug(error))
            raise

    def _see_bound(self, found: Object, worker: WorkerId) -> None:
        """The pod is bound already: by an earlier try of this command, or by a command that was
        lost."""
        self._see(found)
        if worker not in self._pod_tracker.pods:
            status = part(found, "status")
            details = [str(status[each]) for each in ("reason", "message") if status.get(each)]
            why = shown(": ".join(["its pod was already bound to a node", *details]), REASON_CHARS)
            self._give_up(worker, PodTermination(CANNOT_RUN, f"{why}; {RUNS_ONCE}"))

    async def _bind(self, found: Object, placement: PodPlacement) -> None:
        meta = found["metadata"]
        held = [*(meta.get("finalizers") or ()), naming.FINALIZER]
        metadata = placement_metadata(placement, uid=meta["uid"])
        body = {"metadata": {**metadata, "uid": meta["uid"], "finalizers": sorted(set(held))}}
        marked = await self._client.patch(PODS, meta["name"], body=body)
        self._see(marked)
        if self._is_wanted(placement.worker):
            await self._client.bind(marked, node=placement.slot.node)

    def _is_wanted(self, worker: WorkerId) -> bool:
        """Whether the worker has not ended and has not been stopped meanwhile."""
        return worker not in self._pod_tracker.terminations and not self._pod_tracker.is_to_end(
            worker
        )


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        what = f"the label {PRIORITY}={shown(text)} is not an integer"
        raise UserError(what, "use 0, or a larger number for a higher priority") from None
