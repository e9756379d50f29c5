"""Everything that a training is made of, and how far it is."""

# torch is typed in parts only.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch

from rota_trainer.live.buffers import Buffers
from rota_trainer.live.chance import Chance
from rota_trainer.torch import parts, randomness
from rota_trainer.torch.reading import classes_in

FRESH = -1
SCALED = ("lr", "initial_lr", "max_lr", "min_lr")


@dataclass
class Progress:
    """`global_step` counts the steps of all epochs; before the first state is known it is FRESH.
    `used` are samples of this epoch, `steps` its steps. `rate_factor` is what the learning rates
    are multiplied by now."""

    global_step: int = FRESH
    epoch: int = 0
    used: int = 0
    steps: int = 0
    rate_factor: float = 1.0


class Parts:
    """The script's model, optimizer and so on, by name, and the progress."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.named = {name: each for name, each in named.items() if each is not None}
        self.at = Progress()
        self._chance = Chance()
        self._buffers = Buffers(self.named["model"])
        for name, part in self.named.items():
            parts.state_of(name, part)

    def state(self) -> dict[str, Any]:
        """Tensors in it are those that are trained, not copies."""
        states = {name: parts.state_of(name, part) for name, part in self.named.items()}
        return {"parts": states, "progress": asdict(self.at)}

    def classes(self) -> set[type]:
        return set(classes_in(self.state()))

    def load(self, state: dict[str, Any]) -> None:
        """All of it, or nothing if it is of something else."""
        parts.check(self.named, state["parts"])
        for name, part in self.named.items():
            parts.put_back(part, state["parts"][name])
        self.at = Progress(**state["progress"])

    def scale_rates(self, factor: float) -> None:
        """Learning rates as they are for so many workers."""
        ratio = factor / self.at.rate_factor
        self.at.rate_factor = factor
        if ratio == 1.0:
            return
        for group in self.named["optimizer"].param_groups:
            for name in SCALED:
                if name in group:
                    group[name] = group[name] * ratio
        scheduler: Any = self.named.get("scheduler")
        if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [rate * ratio for rate in scheduler.base_lrs]

    def snapshot(self) -> dict[str, Any]:
        """What a step changes before its gradients are applied: small, and taken before each."""
        groups = self.named["optimizer"].param_groups
        scheduler = self.named.get("scheduler")
        return {
            "buffers": [each.detach().clone() for each in self._buffers.now()],
            "random": self._chance.take(),
            "rates": [{k: v for k, v in group.items() if k != "params"} for group in groups],
            "scheduler": None if scheduler is None else dict(scheduler.state_dict()),
            # Its attributes: asking it for its state would wait for the GPU in each step.
            "scaler": _copied(vars(self.named["scaler"])) if "scaler" in self.named else None,
        }

    def put_back(self, snapshot: dict[str, Any]) -> None:
        """As if the step had never begun; its gradients are forgotten."""
        optimizer = self.named["optimizer"]
        for each, was in zip(self._buffers.now(), snapshot["buffers"]):
            each.detach().copy_(was)
        randomness.put_back(snapshot["random"])
        for group, was in zip(optimizer.param_groups, snapshot["rates"]):
            group.update(was)
        if snapshot["scheduler"] is not None:
            self.named["scheduler"].load_state_dict(snapshot["scheduler"])
        if snapshot["scaler"] is not None:
            vars(self.named["scaler"]).update(_copied(snapshot["scaler"]))
        optimizer.zero_grad(set_to_none=True)


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else copy.copy(value)
        for name, value in attributes.items()
    }


def on_cpu(state: Any) -> Any:
    """A copy that training does not change any more."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: on_cpu(value) for key, value in cast("dict[Any, Any]", state).items()}
    if type(state) in (list, tuple):
        return type(state)(on_cpu(value) for value in state)
    return copy.copy(state)
