"""What scripts hand over, as plain numbers. Knows no library: a tensor is what has a shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rota_trainer.bounds import LONGEST_NAME


def as_number(value: Any) -> float | None:
    """A finite number, if that is what it is: of Python, of numpy, or a tensor with one value."""
    if isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001 - any library's own refusal
        return None
    return number if math.isfinite(number) else None


def as_numbers(metrics: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """Those that are finite numbers, and the names of the others. Long names are cut."""
    named = {name[:LONGEST_NAME]: as_number(value) for name, value in metrics.items()}
    found = {name: number for name, number in named.items() if number is not None}
    return found, [name for name in named if name not in found]


def n_samples(batch: Any) -> int:
    """How many samples a batch holds, 0 if it cannot be told."""
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
    """How many batches there are, where that is known."""
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a loader may be anything
        return None


def _is_sequence(value: Any) -> bool:
    return type(value) in (list, tuple)
