"""What scripts hand over, as plain numbers. Knows no library: a tensor is what has a shape."""

from __future__ import annotations

import math
from typing import Any, Optional


def as_number(value: Any) -> Optional[float]:
    """A finite number, if that is what it is: of Python, of numpy, or a tensor with one value."""
    if isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001 - any library's own refusal
        return None
    return number if math.isfinite(number) else None


def n_samples(batch: Any) -> int:
    """How many samples a batch holds, 0 if it cannot be told."""
    try:
        if isinstance(batch, dict):
            batch = list(batch.values())
        first = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
        shape = getattr(first, "shape", None)
        if shape:
            return int(shape[0])
        return len(first if isinstance(first, (list, tuple)) else batch)
    except Exception:  # noqa: BLE001 - a batch may be anything
        return 0
