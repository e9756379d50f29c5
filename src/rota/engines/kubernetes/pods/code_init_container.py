"""The container that brings a worker what was shipped with its job, before it starts. Pure.

Pods do not see the daemon's disk. They may ask it, with the token of their attempt.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePosixPath

from rota.engines.base import Program
from rota.engines.kubernetes.objects import Object
from rota.engines.kubernetes.settings import KubernetesSettings

NAME = "code"
NOT_NOW = 75
"""With what it ends if it may work later."""
TOLD = ("ROTA_URL", "ROTA_TOKEN")
FETCH = files("rota.engines.kubernetes").joinpath("fetch_code.py").read_text()
HINT = (
    "what is shipped is fetched from the daemon by python3 of the image that the setting pod_image"
    " names"
)


def volume() -> Object:
    return {"name": NAME, "emptyDir": {}}


def place(program: Program) -> Object:
    return {"name": NAME, "mountPath": program.code}


def fetcher(program: Program, worker: Object, *, settings: KubernetesSettings) -> Object:
    """It may use what the worker's own container may, and has what that one mounts to read: its
    Python may be there. Nothing that it clears away can be anybody's data."""
    asked: Object = worker["resources"]
    wanted = {kind: _without_cards(asked[kind]) for kind in asked}
    seen = [each for each in worker["volumeMounts"] if _is_to_read(each, program)]
    return {
        "name": NAME,
        "image": settings.image,
        "command": ["python3", "-c", FETCH.replace("$", "$$"), program.code],
        "env": [{"name": each, "value": program.env[each]} for each in TOLD if each in program.env],
        "resources": wanted,
        "securityContext": worker["securityContext"],
        "volumeMounts": [*seen, place(program)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _is_to_read(mount: Object, program: Program) -> bool:
    is_below = PurePosixPath(mount["mountPath"]).is_relative_to(program.code)
    return bool(mount.get("readOnly")) and not is_below


def _without_cards(wanted: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if name in ("cpu", "memory")}
