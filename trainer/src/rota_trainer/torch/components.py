"""The components of a training state: model, optimizer, sampler, random generator and others.

Captures the state of each component, restores it, and checks before a restore that a saved state
fits the components.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

MOST_NAMED = 5
"""How many keys a message lists; of the others it gives the number."""


class OtherStateError(ValueError):
    """The checkpoint does not fit: another model, another optimizer, or other components.

    The daemon finds this class name in the log of a failed worker.
    """


def unwrapped(part: Any) -> Any:
    """The model inside of DistributedDataParallel, DataParallel or torch.compile, so that the
    saved keys do not depend on these wrappers."""
    is_parallel = isinstance(part, (DataParallel, DistributedDataParallel))
    inside: Any = getattr(part, "module" if is_parallel else "_orig_mod", None)
    return unwrapped(inside) if isinstance(inside, torch.nn.Module) else part


def state_of(name: str, part: Any) -> Any:
    """The state of a component. Raises TypeError for an object without a state."""
    if hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
        return part.state_dict()
    if isinstance(part, torch.Generator):
        return part.get_state()
    if hasattr(part, "bit_generator"):
        return part.bit_generator.state
    if hasattr(part, "set_epoch") and hasattr(part, "epoch"):
        return {"epoch": part.epoch}
    raise TypeError(
        f"{name}={type(part).__name__} cannot be saved: it has no state_dict() and"
        " load_state_dict(); add both methods, or do not pass it"
    )


def restore_component(part: Any, state: Any) -> None:
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(state)
    elif isinstance(part, torch.Generator):
        part.set_state(state)
    elif hasattr(part, "bit_generator"):
        part.bit_generator.state = state
    else:
        part.set_epoch(state["epoch"])


def check(parts: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise OtherStateError if a checkpoint does not fit. Call it before changing anything."""
    problems = list(_differences("parts", now=set(parts), saved=set(saved)))
    for name in parts.keys() & saved.keys():
        part = parts[name]
        if isinstance(part, torch.nn.Module):
            problems += _of_model(name, now=part.state_dict(), saved=saved[name])
        elif isinstance(part, torch.optim.Optimizer):
            problems += _of_optimizer(name, now=part.state_dict(), saved=saved[name])
    if problems:
        raise OtherStateError(
            "the checkpoint does not fit this training: "
            + "; ".join(problems)
            + ". Restore it with the code that saved it, or use a new checkpoint folder"
        )


def _of_model(name: str, *, now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    yield from _differences(name, now=set(now), saved=set(saved))
    shapes = [
        f"{key} (here {_shape(now[key])}, saved {_shape(saved[key])})"
        for key in sorted(now.keys() & saved.keys())
        if _shape(now[key]) != _shape(saved[key])
    ]
    if shapes:
        yield f"{name} has other shapes: {_some(shapes)}"


def _of_optimizer(name: str, *, now: dict[str, Any], saved: dict[str, Any]) -> Iterator[str]:
    sizes = [[len(group["params"]) for group in state["param_groups"]] for state in (now, saved)]
    if sizes[0] != sizes[1]:
        yield f"{name} has groups of {sizes[0]} parameters here, of {sizes[1]} in the checkpoint"


def _differences(name: str, *, now: set[str], saved: set[str]) -> Iterator[str]:
    if now - saved:
        yield f"{name} missing in the checkpoint: {_some(sorted(now - saved))}"
    if saved - now:
        yield f"{name} unexpected in the checkpoint: {_some(sorted(saved - now))}"


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
