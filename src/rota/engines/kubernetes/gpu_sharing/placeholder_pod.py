"""The pod that holds a card for those who share it. Pure."""

from __future__ import annotations

from dataclasses import replace

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.bodies import indices
from rota.engines.kubernetes.endings import Trouble, trouble_of
from rota.engines.kubernetes.manifests import affinity
from rota.engines.kubernetes.objects import MANAGER, Object
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import shown

Place = tuple[str, int]
"""A node, and the index of a card there."""

WHICH_CARD = """\
case "$NVIDIA_VISIBLE_DEVICES" in
  ""|all|none|void|/*) nvidia-smi --query-gpu=uuid --format=csv,noheader ;;
  *) echo "$NVIDIA_VISIBLE_DEVICES" ;;
esac
trap 'exit 0' TERM INT
while :; do sleep 3600 & wait $!; done
"""
"""Says which card it was given, and then holds it. Some device plugins name cards by files below a
folder, and the folder in their place."""
IMAGE_HINT = (
    "a shared card is held by a pod of ours, whose image (the setting placeholder_image) the "
    "cluster has to be able to pull, and which needs sh"
)


CARD_HINT = (
    "the device plugin has to name it in NVIDIA_VISIBLE_DEVICES, or the image of the pod that "
    "holds it (the setting placeholder_image) needs nvidia-smi"
)
SHARED = "nvidia.com/"


def can_be_shared(gpu_resource: str) -> bool:
    """Whether a pod that asks for none of them can be given one by its name: only NVIDIA's
    container runtime does that."""
    return gpu_resource.startswith(SHARED)


def placeholder(place: Place, worker: WorkerId, *, settings: KubernetesSettings) -> Object:
    node, index = place
    labels = {names.MANAGED_BY: MANAGER, names.ROLE: names.PLACEHOLDER}
    meta = {"name": names.placeholder_name(worker), "labels": labels}
    small = {"cpu": "10m", "memory": "32Mi", settings.gpu_resource: "1"}
    container = {
        "name": names.CONTAINER,
        "image": settings.placeholder_image or settings.image,
        "command": ["sh", "-c", WHICH_CARD.replace("$", "$$")],
        "env": [{"name": names.PLACE_VARIABLE, "value": f"{node}/{index}"}],
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


def trouble_with(pod: Object) -> Trouble | None:
    """What keeps it from holding its card, if something does."""
    known = trouble_of(pod)
    return known if known is None or known.is_race else replace(known, hint=IMAGE_HINT)


def card_in(line: str) -> str | Trouble:
    """Which card the holder was given, from the first line that it wrote. Where it could not find
    out, a shell says why instead."""
    name = line.strip()
    if name and " " not in name and not name.startswith("/"):
        return name
    return Trouble(f"it does not say which card it was given: {shown(name) or '-'}", CARD_HINT)


def place_of(pod: Object) -> Place | None:
    node, _, index = names.told(pod).get(names.PLACE_VARIABLE, "").rpartition("/")
    held = indices(index)
    return (node, held[0]) if node and held else None
