"""What a job mounts, as volumes of a pod. Pure.

A source is `pvc:CLAIM` or `pvc:CLAIM/FOLDER`, `nfs:SERVER:/PATH`, or a folder of the node.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.engines.base import Mount, Program
from rota.engines.kubernetes import fetching
from rota.engines.kubernetes.objects import Object
from rota.engines.kubernetes.quantities import whole
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import PATH, UserError, shown

SHARED_MEMORY = "/dev/shm"
SHARED_MEMORY_MAX = 8 * 1024**3


def volumes_of(program: Program, settings: KubernetesSettings) -> tuple[list[Object], list[Object]]:
    """The pod's volumes, and where its container has them."""
    volumes: list[Object] = []
    places: list[Object] = []
    for number, mount in enumerate(program.mounts):
        name = f"mount-{number}"
        source, folder = _source(mount, settings)
        volumes.append({"name": name} | source)
        place = {"name": name, "mountPath": mount.target, "readOnly": not mount.is_writable}
        places.append(place | ({"subPath": folder} if folder else {}))
    if program.code:
        volumes.append(fetching.volume())
        places.append(fetching.place(program))
    if not any(mount.target == SHARED_MEMORY for mount in program.mounts):
        memory = {"medium": "Memory", "sizeLimit": whole(_shared_memory_bytes(program))}
        volumes.append({"name": "shared-memory", "emptyDir": memory})
        places.append({"name": "shared-memory", "mountPath": SHARED_MEMORY})
    return volumes, places


def _shared_memory_bytes(program: Program) -> int:
    """What loaders pass batches through; it counts as the worker's memory."""
    limit = program.limits.memory_bytes
    return min(limit // 2, SHARED_MEMORY_MAX) if limit else SHARED_MEMORY_MAX


def _source(mount: Mount, settings: KubernetesSettings) -> tuple[Object, str]:
    kind, _, rest = mount.source.partition(":")
    if kind == "pvc":
        claim, _, folder = rest.partition("/")
        wanted = {"claimName": claim, "readOnly": not mount.is_writable}
        return {"persistentVolumeClaim": wanted}, folder
    if kind == "nfs":
        server, _, path = rest.partition(":")
        wanted = {"server": server, "path": path, "readOnly": not mount.is_writable}
        return {"nfs": wanted}, ""
    top = _allowed(mount.source, settings.host_paths)
    below = mount.source.removeprefix(top.rstrip("/"))
    # Links in a folder of a volume lead nowhere else; in the path of one they would be followed,
    # to wherever somebody who may write there has them lead.
    folder = "/".join(each for each in below.split("/") if each not in ("", "."))
    return {"hostPath": {"path": top}}, folder


def _allowed(path: str, allowed: Sequence[str]) -> str:
    """The highest of the allowed folders that it is in."""
    found = [each for each in allowed if _is_below(path, each)]
    if ".." in path.split("/") or not found:
        what = f"folder {shown(path, PATH)} of a node may not be mounted"
        listed = ", ".join(allowed)
        hint = f"below these it may: {listed}" if listed else "use a claim: pvc:NAME:/TARGET"
        raise UserError(what, hint)
    return min(found, key=len)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
