"""The init container that fetches the shipped code before the worker starts. Pure.

Pods do not see the daemon's disk, so they download the code with the token of their attempt.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePosixPath

from rota.engines.interface import Program
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.resources import Object

NAME = "code"
TRY_LATER = 75
"""Exit code if a later try may succeed."""
PASSED_ENV = ("ROTA_URL", "ROTA_TOKEN")
FETCH_SCRIPT = files("rota.engines.kubernetes.pods").joinpath("fetch_code.py").read_text()
HINT = "python3 of the image in the setting pod_image fetches the shipped code from the daemon"


def volume() -> Object:
    return {"name": NAME, "emptyDir": {}}


def mount(program: Program) -> Object:
    return {"name": NAME, "mountPath": program.code}


def code_fetch_container(
    program: Program, worker: Object, *, settings: KubernetesSettings
) -> Object:
    """Has the limits of the worker's container, and its read-only mounts: its Python may be in
    one of them. The mounts are read-only, so clearing the folder cannot delete user data."""
    asked: Object = worker["resources"]
    wanted = {kind: _without_gpus(asked[kind]) for kind in asked}
    seen = [each for each in worker["volumeMounts"] if _is_readable(each, program)]
    return {
        "name": NAME,
        "image": settings.image,
        "command": ["python3", "-c", FETCH_SCRIPT.replace("$", "$$"), program.code],
        "env": [each for each in worker["env"] if each["name"] in PASSED_ENV],
        "resources": wanted,
        "securityContext": worker["securityContext"],
        "volumeMounts": [*seen, mount(program)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _is_readable(volume_mount: Object, program: Program) -> bool:
    is_below = PurePosixPath(volume_mount["mountPath"]).is_relative_to(program.code)
    return bool(volume_mount.get("readOnly")) and not is_below


def _without_gpus(wanted: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if name in ("cpu", "memory")}
