"""Converts metrics and batches of any library to plain numbers.

Imports no library: a tensor is any object that has a shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rota_trainer.reporting.limits import LONGEST_NAME


def as_number(value: Any) -> float | None:
    """The value as a finite float (of Python, numpy, or a tensor with one element), else None."""
    if isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001 - a library may raise its own error
        return None
    return number if math.isfinite(number) else None


def as_numbers(metrics: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """The metrics that are finite numbers, and the names of the others. Long names are cut."""
    named = {name[:LONGEST_NAME]: as_number(value) for name, value in metrics.items()}
    found = {name: number for name, number in named.items() if number is not None}
    return found, [name for name in named if name not in found]


def n_samples(batch: Any) -> int:
    """The number of samples in a batch; 0 if unknown."""
    try:
        parts: Any = list(batch.values()) if hasattr(batch, "values") else batch
        first: Any = parts[0] if _is_sequence(parts) and len(parts) else parts
        shape = getattr(first, "shape", None)
        if shape:
            return int(shape[0])
        return len(first if _is_sequence(first) else parts)
    except Exception:  # noqa: BLE001 - a batch may be anything
        return 0


def n_steps(loader: Any) -> int | None:
    """The number of batches of a loader; None if unknown."""
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a loader may be anything
        return None


def _is_sequence(value: Any) -> bool:
    return type(value) in (list, tuple)
