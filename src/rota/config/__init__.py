"""Where rota keeps its things on this machine."""

from __future__ import annotations

import os
from pathlib import Path

SYSTEM_STATE = Path("/var/lib/rota")
STORE_NAME = "rota.db"
SOCKET_NAME = "rota.sock"


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


def config_dir() -> Path:
    """What a user chose, by XDG: never root's for others, and never in the state folder."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".config") / "rota"


def store_file() -> Path:
    return state_dir() / STORE_NAME


def make_state_dir() -> Path:
    """Root's lets everybody through to the socket; anybody else's is private."""
    folder = state_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return folder
