"""Where rota keeps its things on this machine."""

from __future__ import annotations

import os
from pathlib import Path

SYSTEM_STATE = Path("/var/lib/rota")
STORE_NAME = "rota.db"


def state_dir() -> Path:
    """`ROTA_HOME`; else, for root, the system's folder; else the user's, by XDG."""
    chosen = os.environ.get("ROTA_HOME")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return SYSTEM_STATE
    # The XDG specification wants a relative path to be ignored.
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "rota"


def store_file() -> Path:
    return state_dir() / STORE_NAME
