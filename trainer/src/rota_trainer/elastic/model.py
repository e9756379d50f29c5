"""The model that a live training script calls: the same object in every generation."""

# torch has incomplete type hints.
# pyright: basic, reportPrivateImportUsage=false
# `Module.buffers` is too slow for each step; `Module._buffers` is used instead.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_TAKES = inspect.signature(DistributedDataParallel.__init__).parameters


def _do_nothing() -> None:
    pass


class ElasticModel(torch.nn.Module):
    """Calls the script's model, through DistributedDataParallel (DDP) if there are several workers.

    The gradients of each worker are multiplied by its share of the samples and summed. The result
    is the mean over all samples, also if the shares differ. `before_sharing` is called each time
    some gradients are ready, before the all-reduce.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        options: dict[str, Any],
        *,
        before_sharing: Callable[[], None] = _do_nothing,
    ) -> None:
        super().__init__()
        self.before_sharing = before_sharing
        self.module = module
        self.weight = 1.0
        self.ready_s = 0.0
        """When the last gradients were ready; after this the worker only waits for the others."""
        self._options = options
        self._module_buffers = ModelBuffers(module)
        # In a list, so that torch does not register it as a submodule: it has the same parameters.
        self._ddp: list[DistributedDataParallel] = []

    def forward(self, *inputs: Any, **named: Any) -> Any:
        model = self._ddp[0] if self._ddp else self.module
        return model(*inputs, **named)

    def set_weight(self, weight: float) -> None:
        """Set the weight of this worker's gradients."""
        # Assigning through `Module.__setattr__` searches all parameters and submodules.
        self.__dict__["weight"] = weight

    def wrap_ddp(self, device: torch.device) -> None:
        """Wrap the model in DDP over the open process group."""
        self.unwrap_ddp()
        ddp = DistributedDataParallel(
            self.module,
            device_ids=[device.index] if device.type == "cuda" else None,
            **_without_syncs(),
            **self._options,
        )
        ddp.register_comm_hook(self, _weighted_sum)
        self._ddp = [ddp]

    def unwrap_ddp(self) -> None:
        """Remove DDP, and with it the process group."""
        for ddp in self._ddp:
            # An object that is still referenced must not get gradients of the next generation.
            ddp.reducer._remove_autograd_hooks()
        self._ddp = []

    def broadcast_buffers(self) -> None:
        """Give all workers the buffers (such as batch norm statistics) of rank 0."""
        for kind, same in _by_kind(self._module_buffers.now()).items():
            flat = torch.cat([each.detach().reshape(-1) for each in same]).to(kind[0])
            dist.broadcast(flat, 0)
            for each, part in zip(same, flat.split([each.numel() for each in same])):
                each.detach().copy_(part.view_as(each))


def _weighted_sum(model, bucket):
    # No annotations: DDP inspects the annotations of hooks and rejects ones that are strings.
    model.__dict__["ready_s"] = time.perf_counter()
    model.before_sharing()
    gradients = bucket.buffer()
    # With weight 0 the gradients may be NaN, and 0 * NaN is NaN.
    gradients = gradients.mul_(model.weight) if model.weight else gradients.zero_()
    work: Any = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(_first)


def _first(done: Any) -> torch.Tensor:
    return done.value()[0]


def _without_syncs() -> dict[str, Any]:
    """DDP options that disable its own synchronization: all workers have the same state already,
    and buffers are broadcast after each step."""
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


class ModelBuffers:
    """The buffers of a model, found fast enough for each step: `Module.buffers` walks through the
    whole model. The modules stay the same; the tensors in them may change."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._held = [each._buffers for each in module.modules()]

    def now(self) -> list[torch.Tensor]:
        return [each for held in self._held for each in held.values() if each is not None]
