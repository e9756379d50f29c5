"""Identifies the code of a run: a checkpoint that other code wrote is not loaded."""

from __future__ import annotations

import sys


def main_script_hash() -> str:
    """The hash of the main script; empty if there is none (an interactive session)."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return ""
    import hashlib
    from pathlib import Path

    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
