"""The state of a live training: its components and its progress; snapshots to undo a step."""

# torch has incomplete type hints.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch

from rota_trainer.elastic.model import ModelBuffers
from rota_trainer.elastic.rng_snapshot import RngSnapshot
from rota_trainer.torch import components, rng
from rota_trainer.torch.safe_load import classes_in

FRESH = -1
"""The step count of a worker that has no training state yet."""
SCALED = ("lr", "initial_lr", "max_lr", "min_lr")


@dataclass
class TrainingProgress:
    """`global_step` counts the steps of all epochs; FRESH means that no state was loaded yet.
    `used` counts the used samples of this epoch, `steps` its finished steps. `rate_factor` is the
    current factor of the learning rates. Stored in checkpoints under these names."""

    global_step: int = FRESH
    epoch: int = 0
    used: int = 0
    steps: int = 0
    rate_factor: float = 1.0


class TrainingState:
    """The components of the training (model, optimizer and others) by name, and the progress."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.named = {name: each for name, each in named.items() if each is not None}
        self.progress = TrainingProgress()
        self._rng = RngSnapshot()
        self._buffers = ModelBuffers(self.named["model"])
        for name, part in self.named.items():
            components.state_of(name, part)

    def state_dict(self) -> dict[str, Any]:
        """The state. Its tensors are the trained ones, not copies."""
        states = {name: components.state_of(name, part) for name, part in self.named.items()}
        return {"parts": states, "progress": asdict(self.progress)}

    def classes(self) -> set[type]:
        return set(classes_in(self.state_dict()))

    def load(self, state: dict[str, Any]) -> None:
        """Load a whole state. If it does not fit, raise OtherStateError and change nothing."""
        components.check(self.named, state["parts"])
        for name, part in self.named.items():
            components.restore_component(part, state["parts"][name])
        self.progress = TrainingProgress(**state["progress"])

    def scale_rates(self, factor: float) -> None:
        """Scale the learning rates to this factor of the script's own ones."""
        ratio = factor / self.progress.rate_factor
        self.progress.rate_factor = factor
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
        """What a step changes before its gradients are applied. Small, because it is taken before
        each step."""
        groups = self.named["optimizer"].param_groups
        scheduler = self.named.get("scheduler")
        return {
            "buffers": [each.detach().clone() for each in self._buffers.now()],
            "random": self._rng.take(),
            "rates": [{k: v for k, v in group.items() if k != "params"} for group in groups],
            "scheduler": None if scheduler is None else dict(scheduler.state_dict()),
            # The attributes of the scaler: `state_dict` would wait for the GPU in each step.
            "scaler": _copied(vars(self.named["scaler"])) if "scaler" in self.named else None,
        }

    def restore_snapshot(self, snapshot: dict[str, Any]) -> None:
        """Undo an unfinished step: restore the snapshot and drop the gradients."""
        optimizer = self.named["optimizer"]
        for each, was in zip(self._buffers.now(), snapshot["buffers"]):
            each.detach().copy_(was)
        rng.restore_states(snapshot["random"])
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
    """A copy on the CPU that training does not change."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: on_cpu(value) for key, value in cast("dict[Any, Any]", state).items()}
    if type(state) in (list, tuple):
        return type(state)(on_cpu(value) for value in state)
    return copy.copy(state)
