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
"""What people find the pods by that hold shared cards. We know them by what nobody can edit."""
GATE = "rota.dev/plan"
"""A pod with this gate is bound by nobody."""
FINALIZER = "rota.dev/ending"
"""Keeps a pod's object until its end was told."""
MASTER_ADDRESS, CARD = "rota.dev/master-addr", "rota.dev/card"
"""Annotations that are set when the gate opens: where rank 0 is, and which card is shared."""
NODE, GPUS, SHARE, LOG = "rota.dev/node", "rota.dev/gpus", "rota.dev/share", "rota.dev/log"
"""Annotations from birth: the planned node, the slots of its GPUs there, the bytes of a share, and
how much of its output is kept."""
PLACED = "rota.dev/placed"
"""Annotation of a pod that people made themselves: which worker it is, and its own uid, which no
copy of it has."""
GPUS_VARIABLE = "ROTA_SLOTS"
"""The slots of its GPUs once more, in its program's environment, where nobody can edit them."""
SHARE_VARIABLE = "ROTA_GPU_MEMORY_BYTES"
"""And so the bytes of a share."""
PLACE_VARIABLE = "ROTA_PLACE"
"""In the environment of a pod that holds a card: its node, and the slot of the card there."""
SCHEDULER = "rota"
"""Whom pods name as their scheduler that people made themselves."""
CONTAINER = "worker"
SLUG_CHARS = 40
_CARD = "rota-card-"
_LABEL_CHARS = 63
_SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def pod_name(worker: WorkerId, generation: int) -> str:
    return f"rota-{slug(worker.job_id)}-a{worker.attempt}-g{generation}-w{worker.worker}"


def placeholder_name(worker: WorkerId) -> str:
    """After the worker that first needs the card."""
    return f"{_CARD}{slug(worker.job_id)}-a{worker.attempt}-w{worker.worker}"


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
    so, which nobody can edit; of one that people made themselves and left to us, a note."""
    if made := _made_for(pod):
        return made
    if not is_left_to_us(pod):
        return None
    meta = part(pod, "metadata")
    said, _, uid = str(part(meta, "annotations").get(PLACED)).rpartition("/")
    try:
        return _worker(said) if uid == meta.get("uid") else None
    except ValueError:
        return None


def placed(worker: WorkerId, *, uid: str) -> str:
    """The note on a pod that people made themselves."""
    return f"{worker.job_id}/{worker.attempt}/{worker.worker}/{uid}"


def is_left_to_us(pod: Object) -> bool:
    """Whether people made it themselves, for us to place: nobody can edit that, either."""
    return part(pod, "spec").get("schedulerName") == SCHEDULER


def _made_for(pod: Object) -> WorkerId | None:
    name = str(part(pod, "metadata").get("name"))
    if not name.startswith("rota-"):
        return None
    said = told(pod)
    try:
        worker = _worker(said["ROTA_WORKER"])
        return worker if pod_name(worker, int(said["ROTA_GENERATION"])) == name else None
    except (KeyError, ValueError):
        return None


def _worker(said: str) -> WorkerId:
    job_id, attempt, number = said.rsplit("/", 2)
    return WorkerId(JobId(job_id), int(attempt), int(number))


def told(pod: Object) -> dict[str, str]:
    """The variables of its program; a cluster may have put another one before ours."""
    containers = parts(part(pod, "spec"), "containers")
    ours = [each for each in containers if each.get("name") == CONTAINER] or containers
    variables = parts(ours[0], "env") if ours else ()
    return {str(each.get("name")): str(each.get("value")) for each in variables}


def is_placeholder(pod: Object) -> bool:
    """By its name and variables: labels are for everybody to edit."""
    if not str(part(pod, "metadata").get("name")).startswith(_CARD) or is_left_to_us(pod):
        return False
    return PLACE_VARIABLE in told(pod) and worker_of(pod) is None


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()[:8]
