"""Build the placeholder pod that holds a shared GPU, and read its output. Pure."""

from __future__ import annotations

from dataclasses import replace

from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.manifest import affinity
from rota.engines.kubernetes.pods.start_problems import StartProblem, start_problem_of
from rota.engines.kubernetes.pods.state import indices
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import shown
from rota.kube.resources import MANAGER, Object

GpuLocation = tuple[str, int]
"""A node and the index of a GPU there."""

HOLDER_SCRIPT = """\
case "$NVIDIA_VISIBLE_DEVICES" in
  ""|all|none|void|/*) nvidia-smi --query-gpu=uuid --format=csv,noheader ;;
  *) echo "$NVIDIA_VISIBLE_DEVICES" ;;
esac
trap 'exit 0' TERM INT
while :; do sleep 3600 & wait $!; done
"""
"""Prints the id of its GPU, then sleeps. Some device plugins set a folder here instead of an id;
then nvidia-smi reports it."""
IMAGE_HINT = (
    "a placeholder pod holds each shared GPU; the cluster must be able to pull its image (the "
    "setting placeholder_image), and the image needs sh"
)


GPU_ID_HINT = (
    "the device plugin must set NVIDIA_VISIBLE_DEVICES, or the image of the placeholder pod (the "
    "setting placeholder_image) needs nvidia-smi"
)
SHAREABLE_PREFIX = "nvidia.com/"


def can_be_shared(gpu_resource: str) -> bool:
    """Whether a pod that requests no GPU can get one by its id. Only NVIDIA's container runtime
    can do this."""
    return gpu_resource.startswith(SHAREABLE_PREFIX)


def placeholder(location: GpuLocation, worker: WorkerId, *, settings: KubernetesSettings) -> Object:
    node, index = location
    labels = {naming.MANAGED_BY: MANAGER, naming.ROLE: naming.PLACEHOLDER}
    meta = {"name": naming.placeholder_name(worker, index), "labels": labels}
    resources = {"cpu": "10m", "memory": "32Mi", settings.gpu_resource: "1"}
    container = {
        "name": naming.CONTAINER,
        "image": settings.placeholder_image or settings.image,
        "command": ["sh", "-c", HOLDER_SCRIPT.replace("$", "$$")],
        "env": [{"name": naming.PLACE_VARIABLE, "value": f"{node}/{index}"}],
        "resources": {"requests": resources, "limits": resources},
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


def holder_problem(pod: Object) -> StartProblem | None:
    """The start problem of a placeholder pod, if it has one."""
    known = start_problem_of(pod)
    return known if known is None or known.is_race else replace(known, hint=IMAGE_HINT)


def gpu_in(line: str) -> str | StartProblem:
    """The id of the GPU, from the first line of output. Otherwise the line is an error message
    of the shell."""
    name = line.strip()
    if name and " " not in name and not name.startswith("/"):
        return name
    return StartProblem(f"it does not report the id of its GPU: {shown(name) or '-'}", GPU_ID_HINT)


def same_gpu_twice(uuid: str, other: str) -> StartProblem:
    """The problem of a placeholder pod whose GPU another placeholder pod of its node has."""
    message = f"it reports GPU {shown(uuid)}, which the placeholder pod {other} holds already"
    return StartProblem(message, "check the device plugin of the node: each GPU needs an id")


def gpu_location_of(pod: Object) -> GpuLocation | None:
    node, _, index = naming.container_env(pod).get(naming.PLACE_VARIABLE, "").rpartition("/")
    held = indices(index)
    return (node, held[0]) if node and held else None
