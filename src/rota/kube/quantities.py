"""Kubernetes quantities: `8`, `500m`, `16Gi`, `129M`, `1e3`. Pure."""

from __future__ import annotations

import math

UNITS = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}


def parse_quantity(text: str | int | float | None) -> float:
    """The number, or 0 if the text is not a valid quantity."""
    if text is None:
        return 0.0
    written = str(text).strip()
    number = written.rstrip("numkKMGTPEi")
    try:
        found = float(number) * UNITS[written[len(number) :]]
    except (ValueError, KeyError):
        return 0.0
    return found if 0.0 <= found < math.inf else 0.0


def format_cpus(n: float) -> str:
    return f"{round(n * 1000)}m"


def format_integer(n: float) -> str:
    return str(int(n))
