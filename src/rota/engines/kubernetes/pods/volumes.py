"""Turn the mounts of a job into volumes of a pod. Pure.

A source is `pvc:CLAIM` or `pvc:CLAIM/FOLDER`, `nfs:SERVER:/PATH`, or a folder of the node.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.engines.interface import Mount, Program
from rota.engines.kubernetes.pods import code_init_container
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import MAX_SHOWN_PATH_CHARS, UserError, shown
from rota.kube.quantities import format_integer
from rota.kube.resources import Object

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - in the pod
SHARED_MEMORY_MAX = 8 * 1024**3


def volumes_of(program: Program, settings: KubernetesSettings) -> tuple[list[Object], list[Object]]:
    """The volumes of the pod, and the volume mounts of its container."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    for number, mount in enumerate(program.mounts):
        name = f"mount-{number}"
        source, folder = _source(mount, settings)
        volumes.append({"name": name} | source)
        volume_mount = {"name": name, "mountPath": mount.target, "readOnly": not mount.is_writable}
        mounts.append(volume_mount | ({"subPath": folder} if folder else {}))
    if program.code:
        volumes.append(code_init_container.volume())
        mounts.append(code_init_container.mount(program))
    if not any(mount.target == SHARED_MEMORY for mount in program.mounts):
        memory = {"medium": "Memory", "sizeLimit": format_integer(_shared_memory_bytes(program))}
        volumes.append({"name": "shared-memory", "emptyDir": memory})
        mounts.append({"name": "shared-memory", "mountPath": SHARED_MEMORY})
    return volumes, mounts


def _shared_memory_bytes(program: Program) -> int:
    """Data loaders pass batches through it; it counts as memory of the worker."""
    limit = program.limits.memory_bytes
    return min(limit // 2, SHARED_MEMORY_MAX) if limit else SHARED_MEMORY_MAX


def _source(mount: Mount, settings: KubernetesSettings) -> tuple[Object, str]:
    kind, _, rest = mount.source.partition(":")
    if kind == "pvc":
        claim, _, folder = rest.partition("/")
        volume = {"claimName": claim, "readOnly": not mount.is_writable}
        return {"persistentVolumeClaim": volume}, folder
    if kind == "nfs":
        server, _, path = rest.partition(":")
        volume = {"server": server, "path": path, "readOnly": not mount.is_writable}
        return {"nfs": volume}, ""
    top = _allowed(mount.source, settings.host_paths)
    below = mount.source.removeprefix(top.rstrip("/"))
    # Mount the allowed folder with a subPath: Kubernetes does not follow symlinks out of a subPath,
    # but it follows symlinks in a hostPath.
    folder = "/".join(each for each in below.split("/") if each not in ("", "."))
    return {"hostPath": {"path": top}}, folder


def _allowed(path: str, allowed: Sequence[str]) -> str:
    """The highest allowed folder that contains the path."""
    found = [each for each in allowed if _is_below(path, each)]
    if ".." in path.split("/") or not found:
        what = f"folder {shown(path, MAX_SHOWN_PATH_CHARS)} of a node may not be mounted"
        listed = ", ".join(allowed)
        hint = f"allowed folders: {listed}" if listed else "use a claim: pvc:NAME:/TARGET"
        raise UserError(what, hint)
    return min(found, key=len)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
