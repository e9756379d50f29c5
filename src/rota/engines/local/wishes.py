"""What a keeper reads of the daemon's wishes for the end of its worker."""

from __future__ import annotations

import os

from rota.engines.local import files


def grace_s(place: str) -> float | None:
    """How long the attempt has to stop; None if nobody wants it to."""
    wish = files.read_json(f"{os.path.dirname(place)}/{files.STOP}")
    return None if wish is None else float(wish["grace_s"])


def is_doomed(place: str) -> bool:
    """Whether the worker alone is to be killed."""
    return os.path.exists(f"{place}/{files.KILL}")
