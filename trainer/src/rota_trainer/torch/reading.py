"""Reading what torch wrote without running code that it may hold."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Set

import torch


def classes_in(value: Any) -> Iterator[type]:
    """Every class that a state is made of."""
    yield type(value)
    if isinstance(value, dict):
        for each in value.values():
            yield from classes_in(each)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from classes_in(each)


def also_safe(classes: Set[type]) -> Any:
    """While this context lasts, these classes may be made, besides tensors and plain values."""
    if not hasattr(torch.serialization, "safe_globals"):
        return contextlib.nullcontext()
    own: List[Any] = [kind for kind in classes if kind.__module__ not in ("builtins", "torch")]
    return torch.serialization.safe_globals(own)
