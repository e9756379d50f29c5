"""What a worker has to do before it can join the others."""

from __future__ import annotations

import hashlib
import os

import torch

from rota_trainer.live import stores
from rota_trainer.live.joining import Joining, Training
from rota_trainer.live.samples import Samples

PATIENCE_S = 300.0


def prepare(training: Training, samples: Samples, *, backend: str | None) -> Joining | None:
    """None outside of rota: one worker, and nobody to join."""
    if not training.run.place.url:
        return None
    from rota_trainer.live.warming import warm_up

    stores.use_loopback()
    warm_up()
    return Joining(training, identity=identity(training, samples), backend=backend)


def identity(training: Training, samples: Samples) -> str:
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
            f"dataset of {samples.length}",
            f"batch size {samples.batch_size} {samples.scaling}",
            f"seed {samples.seed}",
        )
    )


def default_patience_s() -> float:
    try:
        return max(0.0, float(os.environ.get("ROTA_PATIENCE", PATIENCE_S)))
    except ValueError:
        return PATIENCE_S
