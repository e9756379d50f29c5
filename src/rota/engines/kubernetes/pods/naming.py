"""Names, labels, annotations and variables of our pods, and how to recognise our pods by them.
Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from rota.core.model.job import JobId
from rota.engines.interface import WorkerId
from rota.kube.resources import Object, part, parts

MANAGED_BY = "app.kubernetes.io/managed-by"
JOB, ATTEMPT, WORKER, USER = "rota.dev/job", "rota.dev/attempt", "rota.dev/worker", "rota.dev/user"
ROLE = "rota.dev/role"
PLACEHOLDER = "placeholder"
"""The role label helps people to find placeholder pods. rota recognises them by fields that
users cannot edit."""
GATE = "rota.dev/plan"
"""No scheduler binds a pod with this gate."""
FINALIZER = "rota.dev/ending"
"""Keeps the pod object until its end was reported."""
MASTER_ADDRESS, SHARED_GPUS = "rota.dev/master-addr", "rota.dev/card"
"""Annotations that are set when the gate is removed: the address of rank 0, and the ids of
shared GPUs, with commas between them."""
NODE, GPUS, SHARE = "rota.dev/node", "rota.dev/gpus", "rota.dev/share"
"""Annotations that are set at creation: the planned node, the indices of its GPUs there, and the
bytes of a share."""
PLACED = "rota.dev/placed"
"""Annotation of an external pod: its worker, and its own uid, so that a copy of the pod is not
mistaken for it."""
GPUS_VARIABLE = "ROTA_SLOTS"
"""The GPU indices again, in the environment, which users cannot edit."""
SHARE_VARIABLE = "ROTA_GPU_MEMORY_BYTES"
"""The bytes of a share, in the environment."""
PLACE_VARIABLE = "ROTA_PLACE"
"""In the environment of a placeholder pod: its node and the index of its GPU there."""
TOKEN_SECRET_PREFIX = "rota-token-"
"""Names of the Secrets with tokens. Admission policies reserve this prefix for the daemon."""
SCHEDULER = "rota"
"""The scheduler name of external pods."""
CONTAINER = "worker"
SLUG_CHARS = 40
_PLACEHOLDER_PREFIX = "rota-card-"
_LABEL_CHARS = 63
_SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def pod_name(worker: WorkerId, generation: int) -> str:
    return f"rota-{slug(worker.job_id)}-a{worker.attempt}-g{generation}-w{worker.worker}"


def placeholder_name(worker: WorkerId, gpu: int) -> str:
    """Named after the first worker that needs the GPU, and the index of the GPU on its node."""
    name = f"{slug(worker.job_id)}-a{worker.attempt}-w{worker.worker}-{gpu}"
    return f"{_PLACEHOLDER_PREFIX}{name}"


def slug(text: str) -> str:
    """A valid part of an object name; different for different words."""
    if _SLUG.fullmatch(text):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())[: SLUG_CHARS - 9].strip("-")
    return f"{plain}-{_digest(text)}" if plain else _digest(text)


def label(text: str) -> str:
    """A valid label value: the text itself if possible."""
    if _LABEL.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[: _LABEL_CHARS - 9].strip("-._")
    return f"{plain}-{_digest(text)}" if plain else _digest(text)


def worker_of(pod: Object) -> WorkerId | None:
    """The worker of a pod; None for a foreign pod. Our own pods are recognised by name and
    environment, which users cannot edit; external pods by an annotation."""
    if worker := _created_for(pod):
        return worker
    if not is_external_pod(pod):
        return None
    meta = part(pod, "metadata")
    value, _, uid = str(part(meta, "annotations").get(PLACED)).rpartition("/")
    try:
        return _worker(value) if uid == meta.get("uid") else None
    except ValueError:
        return None


def placed_annotation(worker: WorkerId, *, uid: str) -> str:
    """The value of `PLACED`."""
    return f"{worker.job_id}/{worker.attempt}/{worker.worker}/{uid}"


def is_external_pod(pod: Object) -> bool:
    """Whether a user created the pod for our scheduler. This field is immutable."""
    return part(pod, "spec").get("schedulerName") == SCHEDULER


def _created_for(pod: Object) -> WorkerId | None:
    name = str(part(pod, "metadata").get("name"))
    if not name.startswith("rota-"):
        return None
    env = container_env(pod)
    try:
        worker = _worker(env["ROTA_WORKER"])
        return worker if pod_name(worker, int(env["ROTA_GENERATION"])) == name else None
    except (KeyError, ValueError):
        return None


def _worker(value: str) -> WorkerId:
    job_id, attempt, number = value.rsplit("/", 2)
    return WorkerId(JobId(job_id), int(attempt), int(number))


def container_env(pod: Object) -> dict[str, str]:
    """The environment of the worker's container."""
    return {str(each.get("name")): str(each.get("value")) for each in _container_variables(pod)}


def token_secret(pod: Object) -> str:
    """The name of the Secret with the token of the worker's container; empty without one."""
    for variable in _container_variables(pod):
        name = str(part(variable, "valueFrom", "secretKeyRef").get("name"))
        if name.startswith(TOKEN_SECRET_PREFIX):
            return name
    return ""


def _container_variables(pod: Object) -> Sequence[Object]:
    """A webhook may have added a container before the worker's."""
    containers = parts(part(pod, "spec"), "containers")
    ours = [each for each in containers if each.get("name") == CONTAINER] or containers
    return parts(ours[0], "env") if ours else ()


def is_placeholder(pod: Object) -> bool:
    """Recognised by name and environment, because users may edit labels."""
    if not str(part(pod, "metadata").get("name")).startswith(
        _PLACEHOLDER_PREFIX
    ) or is_external_pod(pod):
        return False
    return PLACE_VARIABLE in container_env(pod) and worker_of(pod) is None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
