"""What torch does only once, done before the others wait for it."""

# torch is typed in parts only.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import torch
import torch.distributed as dist

from rota_trainer.live.model import ElasticModel


def warm_up() -> None:
    """A whole step in a group of one: the first use of DDP imports for seconds."""
    if dist.is_initialized():
        raise RuntimeError(
            "live training makes its own process groups: leave out init_process_group()"
        )
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = ElasticModel(torch.nn.Linear(1, 1), {})
    model.spread(torch.device("cpu"))
    with torch.random.fork_rng(devices=[]):
        model(torch.ones(1, 1)).sum().backward()
    model.gather()
    dist.destroy_process_group()
