"""Where a script runs: as a worker of a job of rota, or alone."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """What rota tells a worker in its environment. Without a `url` the script runs alone."""

    url: str = ""
    token: str = ""
    job: str = ""
    attempt: int = 1
    worker: int = 0
    rank: int = 0
    generation: int = 0
    epochs_done: float = 0.0
    epochs_total: float | None = None
    restarts: int = 0
    checkpoint_dir: str = ""
    began_s: float | None = None
    """When rota started the worker; start-up is measured from there."""
    umask: int | None = None
    """Which rights new files are to lack, where rota could not see to it: in a container."""
    speaks: bool = True
    """Whether this process reports for its worker, which may be several."""


def find_place(env: Mapping[str, str] | None = None) -> Place:
    env = os.environ if env is None else env
    attempt = int(_number(env, "ROTA_ATTEMPT", default=1))
    return Place(
        url=env.get("ROTA_URL", "") if env.get("ROTA_TOKEN") and env.get("ROTA_JOB") else "",
        token=env.get("ROTA_TOKEN", ""),
        job=env.get("ROTA_JOB", ""),
        attempt=attempt,
        worker=_worker(env.get("ROTA_WORKER", "")),
        # Some launchers on one machine set only the local one, beside a rank that is not theirs.
        rank=int(max(_number(env, "RANK"), _number(env, "LOCAL_RANK"))),
        speaks=_speaks(env),
        generation=int(_number(env, "ROTA_GENERATION")),
        epochs_done=_number(env, "EPOCHS_DONE"),
        epochs_total=_number(env, "ROTA_EPOCHS") or None,
        restarts=int(_number(env, "ROTA_RESTARTS", default=attempt - 1)),
        checkpoint_dir=env.get("ROTA_CHECKPOINT_DIR", ""),
        began_s=_number(env, "ROTA_BEGAN") or None,
        umask=_umask(env.get("ROTA_UMASK", "")),
    )


def take_umask(place: Place) -> None:
    if place.umask is not None:
        os.umask(place.umask)


def _umask(text: str) -> int | None:
    try:
        found = int(text, 8)
    except ValueError:
        return None
    return found if 0 <= found <= 0o777 else None


def _speaks(env: Mapping[str, str]) -> bool:
    """Of the processes that torchrun or a framework started in one worker, the first does. Where
    rota has several workers, it gives them local ranks itself."""
    is_launched = bool(env.get("TORCHELASTIC_RUN_ID")) or _number(env, "WORLD_SIZE") <= 1
    return not (is_launched and _number(env, "LOCAL_RANK") > 0)


def _worker(marker: str) -> int:
    """`ROTA_WORKER` is job/attempt/worker/nonce."""
    parts = marker.split("/")
    return int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else 0


def _number(env: Mapping[str, str], name: str, *, default: float = 0.0) -> float:
    try:
        value = float(env.get(name, default))
    except ValueError:
        return default
    return value if math.isfinite(value) and value >= 0 else default
