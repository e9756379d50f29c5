"""Loads files of torch without running code that they may contain.

`torch.load(weights_only=True)` refuses unknown classes. Here the classes are allowed that the
training's own state is made of.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, cast

import torch


def classes_in(value: Any) -> Iterator[type]:
    """The class of a state and of every value in it."""
    yield type(value)
    held: list[Any] = []
    if isinstance(value, dict):
        held = list(cast("dict[Any, Any]", value).values())
    elif isinstance(value, (list, tuple, set)):
        held = list(cast("list[Any]", value))
    for each in held:
        yield from classes_in(each)


def allow_classes(classes: set[type]) -> Any:
    """A context in which torch may load these classes, besides tensors and plain values."""
    if not hasattr(torch.serialization, "safe_globals"):
        return contextlib.nullcontext()
    own: list[Any] = [kind for kind in classes if kind.__module__ not in ("builtins", "torch")]
    return torch.serialization.safe_globals(own + _numpy_constructors())


def _numpy_constructors() -> list[Any]:
    """The constructors of numpy's numbers and arrays. Schedulers often hold a numpy number, such
    as the best loss."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return []
    kinds = [numpy.dtype(code) for code in "?bBhHiIlLqQefd"]
    constructors = [value.__reduce__()[0] for value in (numpy.float64(0), numpy.zeros(0))]
    return [*constructors, numpy.ndarray, numpy.dtype, *{type(kind) for kind in kinds}]


def error_summary(error: Exception) -> str:
    """The line of torch's long error message that names the cause."""
    lines = str(error).splitlines() or [type(error).__name__]
    return next((line.strip() for line in lines if "WeightsUnpickler" in line), lines[0])
