"""The pod that holds a card for those who share it. Pure."""

from __future__ import annotations

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.bodies import indices
from rota.engines.kubernetes.manifests import affinity
from rota.engines.kubernetes.objects import MANAGER, Object, part
from rota.engines.kubernetes.settings import KubernetesSettings

Place = tuple[str, int]
"""A node, and the index of a card there."""

WHICH_CARD = """\
case "$NVIDIA_VISIBLE_DEVICES" in
  ""|all|none|void) nvidia-smi --query-gpu=uuid --format=csv,noheader ;;
  *) echo "$NVIDIA_VISIBLE_DEVICES" ;;
esac
trap 'exit 0' TERM INT
while :; do sleep 3600 & wait $!; done
"""
"""Says which card it was given, and then holds it."""


def placeholder(place: Place, worker: WorkerId, *, settings: KubernetesSettings) -> Object:
    node, index = place
    labels = {names.MANAGED_BY: MANAGER, names.ROLE: names.PLACEHOLDER}
    meta = {
        "name": names.placeholder_name(worker),
        "labels": labels,
        "annotations": {names.NODE: node, names.GPUS: str(index)},
    }
    small = {"cpu": "10m", "memory": "32Mi", settings.gpu_resource: "1"}
    container = {
        "name": "placeholder",
        "image": settings.placeholder_image or settings.image,
        "command": ["sh", "-c", WHICH_CARD.replace("$", "$$")],
        "resources": {"requests": small, "limits": small},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 2,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "affinity": affinity(node),
        "tolerations": list(settings.tolerations),
        "containers": [container],
    }
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in settings.pull_secrets]
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    return {"metadata": meta, "spec": spec}


def place_of(pod: Object) -> Place | None:
    notes = part(pod, "metadata", "annotations")
    held = indices(str(notes.get(names.GPUS, "")))
    return (str(notes[names.NODE]), held[0]) if held and names.NODE in notes else None
