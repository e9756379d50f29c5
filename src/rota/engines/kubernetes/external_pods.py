"""Pods that people made themselves and left to us with `schedulerName: rota`.

Such a pod is the one worker of a job. What we understand of it decides where it goes; a pod that
asks for more is refused by name, because the cluster's own scheduler never looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import PODS, PVCS, ApiError, Cluster, Object
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.endings import CANNOT_RUN, WORDS, Ending
from rota.engines.kubernetes.manifests import Seat
from rota.engines.kubernetes.objects import part, parts
from rota.engines.kubernetes.taints import spelled
from rota.engines.kubernetes.transport import NOT_FOUND
from rota.engines.kubernetes.usage import usage_of
from rota.errors import UserError, shown

USER, PRIORITY = "user", "priority"
"""Labels that say whose it is, and how soon it is to run."""
NOT_UNDERSTOOD = ("affinity", "topologySpreadConstraints", "resourceClaims", "schedulingGroup")
MOUNTED_ANYWHERE = ("ReadWriteMany", "ReadOnlyMany")
ONCE = "a pod that people make themselves runs only once"
GONE = f"its pod is gone, and {ONCE}"


class NotYetError(UserError):
    """What it needs may still come."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod asks for, as far as a scheduler cares."""

    user: str
    priority: int
    gpus: int
    cpus: float
    memory_bytes: int
    node_labels: dict[str, str]
    command: list[str]
    claims: tuple[str, ...]
    tolerations: frozenset[str]


def asked_of(pod: Object, *, gpu_resource: str) -> Asked:
    """Raises for what we would have to look at and do not understand."""
    spec, labels = part(pod, "spec"), part(pod, "metadata", "labels")
    for name in NOT_UNDERSTOOD:
        if spec.get(name):
            raise UserError(f"spec.{name} is not understood", "leave it out, or use nodeSelector")
    for container in [*parts(spec, "initContainers"), *parts(spec, "containers")]:
        if any(each.get("hostPort") for each in parts(container, "ports")):
            raise UserError("spec.containers.ports.hostPort is not understood", "leave it out")
    for volume in parts(spec, "volumes"):
        if volume.get("ephemeral"):
            what = f"the volume {shown(str(volume.get('name')))} is made for the pod alone"
            raise UserError(what, "use a claim that is there already")
    usage = usage_of(pod, gpu_resource)
    first = parts(spec, "containers")[0]
    words = [*(first.get("command") or ()), *(first.get("args") or ())]
    claims = (
        part(each, "persistentVolumeClaim").get("claimName") for each in parts(spec, "volumes")
    )
    return Asked(
        user=str(labels.get(USER) or labels.get(names.USER) or ""),
        priority=_priority(str(labels.get(PRIORITY) or "0")),
        gpus=usage.gpus,
        cpus=usage.cpus,
        memory_bytes=int(usage.memory_bytes),
        node_labels=dict(part(spec, "nodeSelector")),
        command=[str(each) for each in words] or [f"pod/{pod['metadata']['name']}"],
        claims=tuple(str(each) for each in claims if each),
        tolerations=spelled(parts(spec, "tolerations")),
    )


async def require_mountable(cluster: Cluster, claims: tuple[str, ...]) -> None:
    """Where a volume is only in one place, the cluster's own scheduler has to know it."""
    for name in claims:
        try:
            claim = await cluster.get(PVCS, name)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            raise NotYetError(f"there is no claim {shown(name)}", "make it") from None
        modes = set(part(claim, "spec").get("accessModes") or ())
        if not modes & set(MOUNTED_ANYWHERE):
            what = f"the claim {shown(name)} is not one that every node can mount"
            raise UserError(what, "use one with ReadWriteMany or ReadOnlyMany")
        if part(claim, "status").get("phase") != "Bound":
            what = f"the claim {shown(name)} is not bound"
            raise NotYetError(what, "can its storage class bind it before its pod has a node?")


def is_waiting(pod: Object) -> bool:
    """Whether it is ours to place, now."""
    spec, meta = part(pod, "spec"), part(pod, "metadata")
    is_free = not spec.get("nodeName") and not spec.get("schedulingGates")
    is_leaving = bool(meta.get("deletionTimestamp"))
    return spec.get("schedulerName") == names.SCHEDULER and is_free and not is_leaving


def mark(seat: Seat, *, uid: str) -> Object:
    """What makes a pod one of ours, so that it is counted, followed and ended like any other."""
    worker, slot = seat.worker, seat.slot
    return {
        "labels": {
            names.MANAGED_BY: "rota",
            names.JOB: worker.job_id,
            names.ATTEMPT: str(worker.attempt),
            names.WORKER: str(worker.worker),
        },
        "annotations": {
            names.NODE: slot.node,
            names.GPUS: ",".join(map(str, slot.gpus)),
            names.PLACED: names.placed(worker, uid=uid),
        },
    }


class PlainPods:
    """`see` is shown a pod of ours, `give_up` told of a worker that cannot be."""

    def __init__(
        self,
        cluster: Cluster,
        crew: Crew,
        *,
        see: Callable[[Object], None],
        give_up: Callable[[WorkerId, Ending], None],
    ) -> None:
        self._cluster, self._crew = cluster, crew
        self._see, self._give_up = see, give_up

    async def bring_up(self, seat: Seat, pod: str) -> None:
        """Marked first: from then on it is known whose it is, wherever we are interrupted."""
        name, _, uid = pod.partition("/")
        try:
            found = await self._cluster.get(PODS, name)
            if found["metadata"]["uid"] != uid or found["metadata"].get("deletionTimestamp"):
                self._give_up(seat.worker, Ending(CANNOT_RUN, GONE))
                return
            if part(found, "spec").get("nodeName"):
                self._find(found, seat.worker)
            elif self._is_wanted(seat.worker):
                await self._place(found, seat)
        except ApiError as error:
            is_gone = error.status == NOT_FOUND
            words = GONE if is_gone else f"its pod could not be bound: {error}"
            code = CANNOT_RUN if is_gone else -1
            self._give_up(seat.worker, Ending(code, words, is_lost=not is_gone))

    def _find(self, found: Object, worker: WorkerId) -> None:
        """It was bound: by this order, when it was given before, or by one that was lost."""
        self._see(found)
        if worker not in self._crew.bodies:
            status = part(found, "status")
            said = [str(status[each]) for each in ("reason", "message") if status.get(each)]
            why = shown(": ".join(["its node has had its pod", *said]), WORDS)
            self._give_up(worker, Ending(CANNOT_RUN, f"{why}; {ONCE}"))

    async def _place(self, found: Object, seat: Seat) -> None:
        meta = found["metadata"]
        held = [*(meta.get("finalizers") or ()), names.FINALIZER]
        marks = mark(seat, uid=meta["uid"])
        body = {"metadata": {**marks, "uid": meta["uid"], "finalizers": sorted(set(held))}}
        marked = await self._cluster.patch(PODS, meta["name"], body=body)
        self._see(marked)
        if self._is_wanted(seat.worker):
            await self._cluster.bind(marked, node=seat.slot.node)

    def _is_wanted(self, worker: WorkerId) -> bool:
        """Nothing is bound whose end was told, or asked for, meanwhile."""
        return worker not in self._crew.endings and not self._crew.is_to_end(worker)


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        what = f"the label {PRIORITY}={shown(text)} is not a whole number"
        raise UserError(what, "use 0, or a larger one to go first") from None
