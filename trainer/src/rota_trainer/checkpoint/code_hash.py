"""Which code a run is of: a checkpoint of other code is not loaded."""

from __future__ import annotations

import sys


def code_identity() -> str:
    """A hash of the main script, empty where there is none."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return ""
    import hashlib
    from pathlib import Path

    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
