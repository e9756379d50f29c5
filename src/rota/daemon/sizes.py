"""Which sizes a job can be given while it is there."""

from __future__ import annotations

from rota.core.model import JobSpec
from rota.core.wishes import Mode
from rota.daemon.fields import RefusedError


def check_size(spec: JobSpec, workers: int | None) -> None:
    """Raises unless the job can have so many workers; None is whatever the policy says."""
    least, most = spec.min_workers, spec.max_workers
    if spec.mode is Mode.FIXED or least == most:
        raise RefusedError(
            "workers",
            f"job '{spec.name}' has {_counted(most)} from its start to its end",
            "submit it with --mode live, torchrun or restart and a range, such as --gpus 1..4",
        )
    if workers is not None and not least <= workers <= most:
        raise RefusedError(
            "workers",
            f"{_counted(workers)} are not what job '{spec.name}' was submitted for",
            f"choose {least} to {most}",
        )


def _counted(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"
