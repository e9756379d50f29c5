"""Reading what torch wrote without running code that it may hold."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, cast

import torch


def classes_in(value: Any) -> Iterator[type]:
    """Every class that a state is made of."""
    yield type(value)
    held: list[Any] = []
    if isinstance(value, dict):
        held = list(cast("dict[Any, Any]", value).values())
    elif isinstance(value, (list, tuple, set)):
        held = list(cast("list[Any]", value))
    for each in held:
        yield from classes_in(each)


def also_safe(classes: set[type]) -> Any:
    """While this context lasts, these classes may be made, besides tensors and plain values."""
    if not hasattr(torch.serialization, "safe_globals"):
        return contextlib.nullcontext()
    own: list[Any] = [kind for kind in classes if kind.__module__ not in ("builtins", "torch")]
    return torch.serialization.safe_globals(own + _makers_of_numbers())


def _makers_of_numbers() -> list[Any]:
    """What makes numpy's numbers and arrays. The best loss that a scheduler saw is one often."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return []
    kinds = [numpy.dtype(code) for code in "?bBhHiIlLqQefd"]
    makers = [value.__reduce__()[0] for value in (numpy.float64(0), numpy.zeros(0))]
    return [*makers, numpy.ndarray, numpy.dtype, *{type(kind) for kind in kinds}]


def essence(error: Exception) -> str:
    """The line of torch's long message that says what is wrong."""
    lines = str(error).splitlines() or [type(error).__name__]
    return next((line.strip() for line in lines if "WeightsUnpickler" in line), lines[0])
