"""The buffers of a model, such as the statistics that its layers gather."""

# Its own way to all of them is the slow one.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import torch


class Buffers:
    """Looked for in each step, where `Module.buffers` takes long: it goes through the whole model.
    The modules of a model stay the same; which tensors they hold may change."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._held = [each._buffers for each in module.modules()]

    def now(self) -> list[torch.Tensor]:
        return [each for held in self._held for each in held.values() if each is not None]
