"""The model as a script uses it: the same object in every generation."""

# torch is typed in parts only.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rota_trainer.live.buffers import Buffers

_TAKES = inspect.signature(DistributedDataParallel.__init__).parameters


class ElasticModel(torch.nn.Module):
    """Passes on to the script's own model, through DDP where there are several workers.

    Gradients are summed, each worker's with the weight of its share of the samples: the mean over
    all samples, however uneven the shares are.
    """

    def __init__(self, module: torch.nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.before_sharing: Callable[[], None] = lambda: None
        """Called each time some gradients are ready, before they are shared."""
        self.module = module
        self.weight = 1.0
        self.ready_s = 0.0
        """When the last gradients were ready here; what follows is the wait for the others'."""
        self._options = options
        self._buffers_here = Buffers(module)
        # Not as a submodule: its parameters are those of `module`.
        self._parallel: list[DistributedDataParallel] = []

    def forward(self, *inputs: Any, **named: Any) -> Any:
        through = self._parallel[0] if self._parallel else self.module
        return through(*inputs, **named)

    def weigh(self, weight: float) -> None:
        """What the gradients of this worker count for from now on."""
        # A module that is assigned to looks through all that it is made of.
        self.__dict__["weight"] = weight

    def spread(self, device: torch.device) -> None:
        """Over the process group that stands now."""
        self.gather()
        parallel = DistributedDataParallel(
            self.module,
            device_ids=[device.index] if device.type == "cuda" else None,
            **_without_syncs(),
            **self._options,
        )
        parallel.register_comm_hook(self, _weighted_sum)
        self._parallel = [parallel]

    def gather(self) -> None:
        """Let go of the process group."""
        for parallel in self._parallel:
            # Whoever still holds it, it must not hear of the next generation's gradients.
            parallel.reducer._remove_autograd_hooks()
        self._parallel = []

    def buffers_together(self) -> None:
        """Statistics that layers gathered are those of the first worker, in all."""
        for kind, same in _by_kind(self._buffers_here.now()).items():
            flat = torch.cat([each.detach().reshape(-1) for each in same]).to(kind[0])
            dist.broadcast(flat, 0)
            for each, part in zip(same, flat.split([each.numel() for each in same])):
                each.detach().copy_(part.view_as(each))


def _weighted_sum(model, bucket):
    # DDP looks at annotations of hooks, and does not know those that are texts.
    model.__dict__["ready_s"] = time.perf_counter()
    model.before_sharing()
    gradients = bucket.buffer()
    # What counts for nothing may be no number, and nothing times that would be none either.
    gradients = gradients.mul_(model.weight) if model.weight else gradients.zero_()
    work: Any = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(_first)


def _first(done: Any) -> torch.Tensor:
    return done.value()[0]


def _without_syncs() -> dict[str, Any]:
    """All have the same state when DDP is made, and buffers are brought together after a step."""
    wanted = {"init_sync": False, "forward_sync_buffers": False}
    if "forward_sync_buffers" not in _TAKES:
        wanted = {"init_sync": False, "broadcast_buffers": False}
    return {name: value for name, value in wanted.items() if name in _TAKES}


def _by_kind(tensors: list[torch.Tensor]) -> dict[Any, list[torch.Tensor]]:
    found: dict[Any, list[torch.Tensor]] = {}
    for each in tensors:
        if each.numel():
            found.setdefault((each.device, each.dtype), []).append(each)
    return found
