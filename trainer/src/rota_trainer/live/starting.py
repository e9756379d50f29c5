"""How a script begins a live training."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import torch

from rota_trainer.live import stores
from rota_trainer.live.disk import Disk
from rota_trainer.live.joining import Joining, Training
from rota_trainer.live.model import ElasticModel
from rota_trainer.live.parts import Parts
from rota_trainer.live.sharing import SCALINGS
from rota_trainer.live.training import Live, Options
from rota_trainer.run import Run

PATIENCE_S = 300.0
SAVE_EVERY_S = 600.0


def live(
    run: Run,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    batch_size: int,
    scheduler: Any = None,
    scaler: Any = None,
    seed: int = 0,
    backend: str | None = None,
    batch_scaling: str = "constant",
    patience_s: float | None = None,
    save_every_s: float = SAVE_EVERY_S,
    loader: dict[str, Any] | None = None,
    ddp: dict[str, Any] | None = None,
    **extra: Any,
) -> Live:
    """Train with as many workers as there are, however they come and go.

    `batch_size` is that of all workers together; with `batch_scaling` "linear" or "sqrt" it is that
    of each, and the learning rate grows with their number by that rule. `extra` is whatever else
    has `state_dict` and `load_state_dict` and is to be the same in all workers. `patience_s` is how
    long to wait for the daemon when a worker is gone, before saving and stopping. `loader` and
    `ddp` are options for DataLoader and DistributedDataParallel.
    """
    if batch_size < 1 or len(dataset) < 1:
        raise ValueError("live training needs at least one sample, and a batch_size of at least 1")
    if batch_scaling not in SCALINGS:
        raise ValueError(f"batch_scaling={batch_scaling!r}: it is one of {', '.join(SCALINGS)}")
    named = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    parts = Parts({**named, **extra})
    elastic = ElasticModel(model, dict(ddp or {}))
    training = Training(run, parts, elastic, Disk(run, parts, save_every_s))
    options = Options(
        dataset,
        batch_size,
        batch_scaling,
        seed,
        _patience_s() if patience_s is None else patience_s,
        dict(loader or {}),
    )
    return Live(training, _joining(training, options, backend=backend), options)


def identity(training: Training, options: Options) -> str:
    """What has to be the same in all workers of a generation, in words that show what differs."""
    shapes = [
        (name, tuple(each.shape))
        for name, each in training.parts.named["model"].state_dict().items()
    ]
    code = training.run.keeping.code
    return ", ".join(
        (
            f"code {code[:12] or 'unknown'}",
            f"torch {torch.__version__}",
            f"model {hashlib.sha256(repr(shapes).encode()).hexdigest()[:8]}",
            f"dataset of {len(options.dataset)}",
            f"batch size {options.batch_size} {options.scaling}",
            f"seed {options.seed}",
        )
    )


def _joining(training: Training, options: Options, *, backend: str | None) -> Joining | None:
    """None outside of rota: one worker, and nobody to join."""
    if not training.run.place.url:
        return None
    from rota_trainer.live.warming import warm_up

    stores.use_loopback()
    warm_up()
    return Joining(training, identity=identity(training, options), backend=backend)


def _patience_s() -> float:
    try:
        return max(0.0, float(os.environ.get("ROTA_PATIENCE", PATIENCE_S)))
    except ValueError:
        return PATIENCE_S
