"""What we call things in a cluster, and how we know them again. Pure."""

from __future__ import annotations

import hashlib
import re

from rota.core.model import JobId
from rota.engines.base import WorkerId
from rota.engines.kubernetes.objects import Object, part, parts

MANAGED_BY = "app.kubernetes.io/managed-by"
JOB, ATTEMPT, WORKER, USER = "rota.dev/job", "rota.dev/attempt", "rota.dev/worker", "rota.dev/user"
ROLE = "rota.dev/role"
PLACEHOLDER = "placeholder"
GATE = "rota.dev/plan"
"""A pod with this gate is bound by nobody."""
FINALIZER = "rota.dev/ending"
"""Keeps a pod's object until its end was told."""
MASTER_ADDRESS, CARD = "rota.dev/master-addr", "rota.dev/card"
"""Annotations that are set when the gate opens: where rank 0 is, and which card is shared."""
NODE, GPUS, SHARE, LOG = "rota.dev/node", "rota.dev/gpus", "rota.dev/share", "rota.dev/log"
"""Annotations from birth: the planned node, the slots of its GPUs there, the bytes of a share, and
how much of its output is kept."""
GPUS_VARIABLE = "ROTA_SLOTS"
"""The slots of its GPUs once more, in its program's environment, where nobody can edit them."""
SCHEDULER = "rota"
"""Whom pods name as their scheduler that people made themselves."""
CONTAINER = "worker"
SLUG_CHARS = 40
_LABEL_CHARS = 63
_SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def pod_name(worker: WorkerId, generation: int) -> str:
    return f"rota-{slug(worker.job_id)}-a{worker.attempt}-g{generation}-w{worker.worker}"


def placeholder_name(worker: WorkerId) -> str:
    """After the worker that first needs the card."""
    return f"rota-card-{slug(worker.job_id)}-a{worker.attempt}-w{worker.worker}"


def slug(word: str) -> str:
    """A part of a name, and never the same for two words."""
    if _SLUG.fullmatch(word):
        return word
    plain = re.sub(r"[^a-z0-9]+", "-", word.lower())[: SLUG_CHARS - 9].strip("-")
    return f"{plain}-{_digest(word)}" if plain else _digest(word)


def label(word: str) -> str:
    """A text as the value of a label: itself where that is possible."""
    if _LABEL.fullmatch(word):
        return word
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", word)[: _LABEL_CHARS - 9].strip("-._")
    return f"{plain}-{_digest(word)}" if plain else _digest(word)


def worker_of(pod: Object) -> WorkerId | None:
    """Whose pod it is; None for a foreign one. Of a pod that we made, its name and variables say
    so, which nobody can edit; of one that people made themselves and left to us, its labels."""
    labels, notes = part(pod, "metadata", "labels"), part(pod, "metadata", "annotations")
    if made := _made_for(pod):
        return made
    if not is_left_to_us(pod) or labels.get(MANAGED_BY) != "rota" or ROLE in labels:
        return None
    try:
        job_id = str(notes.get(JOB) or labels[JOB])
        return WorkerId(JobId(job_id), int(labels[ATTEMPT]), int(labels[WORKER]))
    except (KeyError, ValueError):
        return None


def is_left_to_us(pod: Object) -> bool:
    """Whether people made it themselves, for us to place: nobody can edit that, either."""
    return part(pod, "spec").get("schedulerName") == SCHEDULER


def _made_for(pod: Object) -> WorkerId | None:
    name = str(part(pod, "metadata").get("name"))
    if not name.startswith("rota-"):
        return None
    said = told(pod)
    try:
        job_id, attempt, number = said["ROTA_WORKER"].rsplit("/", 2)
        worker = WorkerId(JobId(job_id), int(attempt), int(number))
        return worker if pod_name(worker, int(said["ROTA_GENERATION"])) == name else None
    except (KeyError, ValueError):
        return None


def told(pod: Object) -> dict[str, str]:
    """The variables of its program."""
    containers = parts(part(pod, "spec"), "containers")
    variables = parts(containers[0], "env") if containers else ()
    return {str(each.get("name")): str(each.get("value")) for each in variables}


def is_placeholder(pod: Object) -> bool:
    labels = part(pod, "metadata", "labels")
    return labels.get(MANAGED_BY) == "rota" and labels.get(ROLE) == PLACEHOLDER


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()[:8]
