"""From an order of the kernel to pods. Pure: nothing is looked up here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.commands import ChangeMembership, StartWorkers
from rota.core.model import Slot
from rota.engines.base import Program, WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.fetching import fetcher
from rota.engines.kubernetes.objects import MANAGER, TRAINING_JOBS, Object
from rota.engines.kubernetes.quantities import cpus, whole
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.volumes import volumes_of

MASTER_PORT = 29400
UNHEALTHY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""A worker stays on a node that is silent for a while: whether it is lost, others decide."""
SHORTEST_GRACE_S = 2
"""One second is what a kill gives."""
NOBODYS: list[Object] = [{}]
"""Which field is whose is not kept of a pod whose gate is open: it cannot be made otherwise from
then on, and that would be half of it, gone through again with each word of its node."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One worker's place in its job."""

    worker: WorkerId
    generation: int
    rank: int
    size: int
    slot: Slot


def seats(command: StartWorkers | ChangeMembership) -> list[Seat]:
    """One for each slot; its place is the worker's rank."""
    first = range(len(command.allocation))
    numbers = command.workers if isinstance(command, ChangeMembership) else first
    return [
        Seat(
            WorkerId(command.job_id, command.attempt, number),
            command.generation,
            rank,
            len(command.allocation),
            slot,
        )
        for rank, (number, slot) in enumerate(zip(numbers, command.allocation, strict=True))
    ]


def pod_of(seat: Seat, program: Program, *, settings: KubernetesSettings) -> Object:
    """Gated: nobody binds it before `opened`."""
    volumes, places = volumes_of(program, settings)
    worker = _container(seat, program, settings=settings) | {"volumeMounts": places}
    spec: Object = {
        "schedulingGates": [{"name": names.GATE}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_s(program.grace_s),
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        # The program hears a stop as on any machine: the first process of a pod would not.
        "shareProcessNamespace": True,
        "securityContext": _rights(program),
        "tolerations": [*settings.tolerations, *map(_tolerated, UNHEALTHY)],
        "volumes": volumes,
        "containers": [worker],
    }
    if program.code:
        spec["initContainers"] = [fetcher(program, worker, settings=settings)]
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in settings.pull_secrets]
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    return {"metadata": _metadata(seat, program), "spec": spec}


def opened(slot: Slot, *, uid: str, notes: dict[str, str]) -> Object:
    """The patch that lets the cluster's scheduler bind this very pod, to this node and no other.
    Where it is to be is said again: somebody may have edited that."""
    meta = {"uid": uid, "annotations": _place(slot) | notes, "managedFields": NOBODYS}
    return {
        "metadata": meta,
        "spec": {"schedulingGates": None, "affinity": affinity(slot.node)},
    }


def _place(slot: Slot) -> dict[str, str]:
    return {names.NODE: slot.node, names.GPUS: _numbers(slot)}


def _numbers(slot: Slot) -> str:
    return ",".join(map(str, slot.gpus))


def affinity(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def grace_s(seconds: float) -> int:
    return max(SHORTEST_GRACE_S, math.ceil(seconds))


def _metadata(seat: Seat, program: Program) -> Object:
    worker, slot = seat.worker, seat.slot
    labels = {
        names.MANAGED_BY: MANAGER,
        names.JOB: names.label(worker.job_id),
        names.ATTEMPT: str(worker.attempt),
        names.WORKER: str(worker.worker),
        names.USER: names.label(program.account.name),
    }
    notes = {
        names.JOB: worker.job_id,
        **_place(slot),
        names.LOG: f"{program.log.file_bytes}x{program.log.files}",
    }
    if slot.share_bytes:
        notes[names.SHARE] = str(slot.share_bytes)
    meta: Object = {
        "name": names.pod_name(worker, seat.generation),
        "labels": labels,
        "annotations": notes,
        "finalizers": [names.FINALIZER],
    }
    if program.owner_uid:
        meta["ownerReferences"] = [_owner(worker, program)]
    return meta


def _owner(worker: WorkerId, program: Program) -> Object:
    return {
        "apiVersion": TRAINING_JOBS.group_version,
        "kind": TRAINING_JOBS.kind,
        "name": program.owner_name or worker.job_id,
        "uid": program.owner_uid,
    }


def _container(seat: Seat, program: Program, *, settings: KubernetesSettings) -> Object:
    container: Object = {
        "name": names.CONTAINER,
        "image": program.image or settings.image,
        "args": [_literal(word) for word in program.argv],
        "env": _environment(seat, program),
        "resources": _resources(seat.slot, program, gpu_resource=settings.gpu_resource),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if program.workdir:
        container["workingDir"] = program.workdir
    if program.ports:
        container["ports"] = [{"containerPort": port} for port in sorted(set(program.ports))]
    return container


def _resources(slot: Slot, program: Program, *, gpu_resource: str) -> Object:
    """What is asked for is what it may have. A sharer asks for no GPU: its card is held for it."""
    wanted: dict[str, str] = {}
    if program.limits.cpus:
        wanted["cpu"] = cpus(program.limits.cpus)
    if program.limits.memory_bytes:
        wanted["memory"] = whole(program.limits.memory_bytes)
    if slot.gpus and not slot.share_bytes:
        wanted[gpu_resource] = str(len(slot.gpus))
    return {"requests": wanted, "limits": wanted} if wanted else {}


def _rights(program: Program) -> Object:
    account = program.account
    rights: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if account.uid is not None:
        rights["runAsUser"] = account.uid
        rights["runAsGroup"] = account.uid if account.gid is None else account.gid
        rights["runAsNonRoot"] = account.uid != 0
    if account.groups:
        rights["supplementalGroups"] = list(account.groups)
    return rights


def _environment(seat: Seat, program: Program) -> list[Object]:
    worker, slot = seat.worker, seat.slot
    plain = dict(program.env) | {
        "ROTA_JOB": worker.job_id,
        "ROTA_ATTEMPT": str(worker.attempt),
        "ROTA_GENERATION": str(seat.generation),
        "ROTA_WORKER": f"{worker.job_id}/{worker.attempt}/{worker.worker}",
        names.GPUS_VARIABLE: _numbers(slot),
        "RANK": str(seat.rank),
        # Each pod sees its own GPUs only, and calls the first of them 0.
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(seat.size),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_PORT": str(MASTER_PORT),
    }
    if worker.attempt > 1:
        plain["ROTA_RESTARTED"] = "1"
    if slot.share_bytes:
        plain[names.SHARE_VARIABLE] = str(slot.share_bytes)
    if not slot.gpus:
        plain |= {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    found = _looked_up(seat)
    named: list[Object] = [
        {"name": key, "value": _literal(plain[key])} for key in sorted(plain.keys() - found.keys())
    ]
    return named + [
        {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in found.items()
    ]


def _looked_up(seat: Seat) -> dict[str, str]:
    """What is known only when the container starts, and where it is found then."""
    where = "status.podIP" if seat.rank == 0 else _note(names.MASTER_ADDRESS)
    # Agents of torchrun else tell each other the names of their pods, which nobody resolves.
    found = {"ROTA_HOST": "status.podIP", "PET_LOCAL_ADDR": "status.podIP", "MASTER_ADDR": where}
    if seat.slot.share_bytes:
        card = _note(names.CARD)
        found |= {"CUDA_VISIBLE_DEVICES": card, "NVIDIA_VISIBLE_DEVICES": card}
    return found


def _note(name: str) -> str:
    return f"metadata.annotations['{name}']"


def _tolerated(taint: str) -> Object:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute"}


def _literal(text: str) -> str:
    """As it stands: the cluster would put a variable's value in the place of its name."""
    return text.replace("$", "$$")
