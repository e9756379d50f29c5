"""Prepares a worker before it joins a generation: identity, slow imports, its own store."""

# torch has incomplete type hints.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist

from rota_trainer.elastic import tcp_store
from rota_trainer.elastic.model import ElasticModel
from rota_trainer.elastic.rendezvous import ElasticRendezvous, TrainingContext
from rota_trainer.elastic.sampler import ElasticSampler

PATIENCE_S = 300.0


def prepare(
    training: TrainingContext, samples: ElasticSampler, *, backend: str | None
) -> ElasticRendezvous | None:
    """The rendezvous of this worker; None outside of rota, where there is one worker only."""
    if not training.run.environment.url:
        return None
    tcp_store.use_loopback()
    warm_up()
    return ElasticRendezvous(training, identity=identity(training, samples), backend=backend)


def identity(training: TrainingContext, samples: ElasticSampler) -> str:
    """A text that must be the same in all members of a generation. The daemon shows the parts that
    differ to the user."""
    shapes = [
        (name, tuple(each.shape))
        for name, each in training.state.named["model"].state_dict().items()
    ]
    code = training.run.checkpointer.code
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


def warm_up() -> None:
    """Run one step in a group of one worker: the first use of DDP takes seconds for imports."""
    if dist.is_initialized():
        raise RuntimeError(
            "live training opens its own process groups; remove init_process_group()"
        )
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = ElasticModel(torch.nn.Linear(1, 1), {})
    model.wrap_ddp(torch.device("cpu"))
    with torch.random.fork_rng(devices=[]):
        model(torch.ones(1, 1)).sum().backward()
    model.unwrap_ddp()
    dist.destroy_process_group()
