"""Build the pods of a command. Pure."""

from __future__ import annotations

import math

from rota.core.model.allocation import Slot
from rota.engines.interface import Program, WorkerId
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.code_init_container import code_fetch_container
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.token_secret import VARIABLE as TOKEN
from rota.engines.kubernetes.pods.token_secret import token_env
from rota.engines.kubernetes.pods.volumes import volumes_of
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.worker_environment import size_variables
from rota.kube.quantities import format_cpus, format_integer
from rota.kube.resources import MANAGER, TRAINING_JOBS, Object

MASTER_PORT = 29400
UNHEALTHY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Workers stay on a node that does not respond; rota decides when it is lost."""
MIN_GRACE_S = 2
"""One second means a kill."""
NO_MANAGED_FIELDS: list[Object] = [{}]
"""Clears the managed fields when the gate is removed. They are half of the pod object, they are
processed with every status update, and rota applies no fields after that."""


def pod_of(placement: PodPlacement, program: Program, *, settings: KubernetesSettings) -> Object:
    """A gated pod: no scheduler binds it before `ungate_patch` is applied."""
    volumes, mounts = volumes_of(program, settings)
    worker = _container(placement, program, settings=settings) | {"volumeMounts": mounts}
    spec: Object = {
        "schedulingGates": [{"name": naming.GATE}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_s(program.grace_s),
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        # As PID 1 of its container the program would ignore SIGTERM.
        "shareProcessNamespace": True,
        "securityContext": _security_context(program),
        "tolerations": [*settings.tolerations, *map(_tolerated, UNHEALTHY)],
        "volumes": volumes,
        "containers": [worker],
    }
    if program.code:
        spec["initContainers"] = [code_fetch_container(program, worker, settings=settings)]
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in settings.pull_secrets]
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    return {"metadata": _metadata(placement, program), "spec": spec}


def ungate_patch(slot: Slot, *, uid: str, notes: dict[str, str]) -> Object:
    """The patch that lets the cluster's scheduler bind the pod to this node only. Sets the
    placement annotations again, because they may have been edited."""
    meta = {
        "uid": uid,
        "annotations": _placement_annotations(slot) | notes,
        "managedFields": NO_MANAGED_FIELDS,
    }
    return {
        "metadata": meta,
        "spec": {"schedulingGates": None, "affinity": affinity(slot.node)},
    }


def _placement_annotations(slot: Slot) -> dict[str, str]:
    return {naming.NODE: slot.node, naming.GPUS: _numbers(slot)}


def _numbers(slot: Slot) -> str:
    return ",".join(map(str, slot.gpus))


def affinity(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def grace_s(seconds: float) -> int:
    return max(MIN_GRACE_S, math.ceil(seconds))


def _metadata(placement: PodPlacement, program: Program) -> Object:
    worker, slot = placement.worker, placement.slot
    labels = {
        naming.MANAGED_BY: MANAGER,
        naming.JOB: naming.label(worker.job_id),
        naming.ATTEMPT: str(worker.attempt),
        naming.WORKER: str(worker.worker),
        naming.USER: naming.label(program.account.name),
    }
    notes = {
        naming.JOB: worker.job_id,
        **_placement_annotations(slot),
    }
    if slot.share_bytes:
        notes[naming.SHARE] = str(slot.share_bytes)
    meta: Object = {
        "name": naming.pod_name(worker, placement.generation),
        "labels": labels,
        "annotations": notes,
        "finalizers": [naming.FINALIZER],
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


def _container(
    placement: PodPlacement, program: Program, *, settings: KubernetesSettings
) -> Object:
    container: Object = {
        "name": naming.CONTAINER,
        "image": program.image or settings.image,
        "args": [_literal(arg) for arg in program.argv],
        "env": _environment(placement, program),
        "resources": _resources(placement.slot, program, gpu_resource=settings.gpu_resource),
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
    """Requests equal limits. A worker with a share requests no GPU: a placeholder pod holds it."""
    wanted: dict[str, str] = {}
    if program.limits.cpus:
        wanted["cpu"] = format_cpus(program.limits.cpus)
    if program.limits.memory_bytes:
        wanted["memory"] = format_integer(program.limits.memory_bytes)
    if slot.gpus and not slot.share_bytes:
        wanted[gpu_resource] = str(len(slot.gpus))
    return {"requests": wanted, "limits": wanted} if wanted else {}


def _security_context(program: Program) -> Object:
    account = program.account
    rights: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if account.uid is not None:
        rights["runAsUser"] = account.uid
        rights["runAsGroup"] = account.uid if account.gid is None else account.gid
        rights["runAsNonRoot"] = account.uid != 0
    if account.groups:
        rights["supplementalGroups"] = list(account.groups)
    return rights


def _environment(placement: PodPlacement, program: Program) -> list[Object]:
    worker, slot = placement.worker, placement.slot
    plain = dict(program.env) | {
        "ROTA_JOB": worker.job_id,
        "ROTA_ATTEMPT": str(worker.attempt),
        "ROTA_GENERATION": str(placement.generation),
        "ROTA_WORKER": f"{worker.job_id}/{worker.attempt}/{worker.worker}",
        naming.GPUS_VARIABLE: _numbers(slot),
        **size_variables(placement.allocation, placement.rank),
        "MASTER_PORT": str(MASTER_PORT),
    }
    if len(placement.allocation) > 1:
        # Each pod sees only its own GPUs, numbered from 0.
        plain |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    if worker.attempt > 1:
        plain["ROTA_RESTARTED"] = "1"
    if slot.share_bytes:
        plain[naming.SHARE_VARIABLE] = str(slot.share_bytes)
    if not slot.gpus:
        plain |= {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    from_fields = _downward_api_env(placement)
    named: list[Object] = [
        {"name": key, "value": _literal(plain[key])}
        for key in sorted(plain.keys() - from_fields.keys() - {TOKEN})
    ]
    return [*named, *token_env(placement, program)] + [
        {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for key, path in from_fields.items()
    ]


def _downward_api_env(placement: PodPlacement) -> dict[str, str]:
    """Variables that are known only when the container starts, with their field paths."""
    master = "status.podIP" if placement.rank == 0 else _annotation_path(naming.MASTER_ADDRESS)
    # Otherwise torchrun agents exchange pod names, which no DNS server resolves.
    from_fields = {
        "ROTA_HOST": "status.podIP",
        "PET_LOCAL_ADDR": "status.podIP",
        "MASTER_ADDR": master,
    }
    if placement.slot.share_bytes:
        gpu = _annotation_path(naming.SHARED_GPUS)
        from_fields |= {"CUDA_VISIBLE_DEVICES": gpu, "NVIDIA_VISIBLE_DEVICES": gpu}
    return from_fields


def _annotation_path(name: str) -> str:
    return f"metadata.annotations['{name}']"


def _tolerated(taint: str) -> Object:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute"}


def _literal(text: str) -> str:
    """Escape `$`, so that Kubernetes does not expand variables."""
    return text.replace("$", "$$")
