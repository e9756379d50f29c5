"""Reads the environment variables that rota sets for a worker. Without them a script runs alone."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple


class WorkerEnvironment(NamedTuple):
    """The values of the environment variables. An empty `url` means that the script runs alone."""

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
    """When rota started the worker; the start-up time is measured from here."""
    umask: int | None = None
    """The umask to set. Given only in containers, where rota cannot set it from outside."""
    is_reporter: bool = True
    """Whether this process reports for its worker. A worker may have several processes."""


def read_environment(env: Mapping[str, str] | None = None) -> WorkerEnvironment:
    env = os.environ if env is None else env
    attempt = int(_number(env, "ROTA_ATTEMPT", default=1))
    return WorkerEnvironment(
        url=env.get("ROTA_URL", "") if env.get("ROTA_TOKEN") and env.get("ROTA_JOB") else "",
        token=env.get("ROTA_TOKEN", ""),
        job=env.get("ROTA_JOB", ""),
        attempt=attempt,
        worker=_worker(env.get("ROTA_WORKER", "")),
        # Some launchers set only LOCAL_RANK and leave the RANK that rota gave to the worker.
        rank=int(max(_number(env, "RANK"), _number(env, "LOCAL_RANK"))),
        is_reporter=_is_reporter(env),
        generation=int(_number(env, "ROTA_GENERATION")),
        epochs_done=_number(env, "EPOCHS_DONE"),
        epochs_total=_number(env, "ROTA_EPOCHS") or None,
        restarts=int(_number(env, "ROTA_RESTARTS", default=attempt - 1)),
        checkpoint_dir=env.get("ROTA_CHECKPOINT_DIR", ""),
        began_s=_number(env, "ROTA_BEGAN") or None,
        umask=_umask(env.get("ROTA_UMASK", "")),
    )


def apply_umask(environment: WorkerEnvironment) -> None:
    if environment.umask is not None:
        os.umask(environment.umask)


def _umask(text: str) -> int | None:
    try:
        found = int(text, 8)
    except ValueError:
        return None
    return found if 0 <= found <= 0o777 else None


def _is_reporter(env: Mapping[str, str]) -> bool:
    """Whether this process reports. If torchrun or a framework started several processes in one
    worker, only the first one reports. LOCAL_RANK alone does not show this: rota sets it too if
    the job has several workers. A framework may change WORLD_SIZE, but not ROTA_PROCESSES."""
    n_workers = _number(env, "ROTA_PROCESSES", default=_number(env, "WORLD_SIZE"))
    is_launched = bool(env.get("TORCHELASTIC_RUN_ID")) or n_workers <= 1
    return not (is_launched and _number(env, "LOCAL_RANK") > 0)


def _worker(marker: str) -> int:
    """The worker number from `ROTA_WORKER`, which is `JOB/ATTEMPT/WORKER/NONCE`."""
    parts = marker.split("/")
    return int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else 0


def _number(env: Mapping[str, str], name: str, *, default: float = 0.0) -> float:
    try:
        value = float(env.get(name, default))
    except ValueError:
        return default
    return value if math.isfinite(value) and value >= 0 else default
