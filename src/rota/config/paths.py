"""Paths of the state directory, the configuration directory, the store and the socket."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from rota.errors import UserError

SYSTEM_STATE = Path("/var/lib/rota")
STORE_NAME = "rota.db"
SOCKET_NAME = "rota.sock"
TRUSTED_NAMES = ("config.toml", "policy", "flags.json", "job-tokens.key", STORE_NAME)
"""Files of the state directory that decide what the daemon does and whom it trusts."""
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
CONTEXTS_NAME = "contexts.json"
LOCAL = "local"
"""The built-in context: the daemon of this machine."""


def state_dir() -> Path:
    """The daemon's state directory: `ROTA_HOME`, else `/var/lib/rota` for root, else the XDG data
    directory of the user."""
    chosen = os.environ.get("ROTA_HOME")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return SYSTEM_STATE
    # The XDG specification says to ignore a relative path.
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "rota"


def config_dir() -> Path:
    """The user's configuration directory (XDG). It is separate from the state directory, and never
    that of another user."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".config") / "rota"


def contexts_file() -> Path:
    """The file with the user's contexts, the named daemons."""
    return config_dir() / CONTEXTS_NAME


def store_file() -> Path:
    return state_dir() / STORE_NAME


def make_state_dir() -> Path:
    """Create the state directory. That of root lets all users reach the socket (mode 711); that of
    other users is private (mode 700). Raises if another user could have written to the directory or
    to a file of settings in it: their content would decide what the daemon does."""
    folder = state_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, *(folder / name for name in TRUSTED_NAMES)):
        _require_trusted(path)
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return folder


def _require_trusted(path: Path) -> None:
    """Only root and the daemon's own user may own or write a path. A missing file is fine."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    own = os.geteuid()
    quoted = shlex.quote(str(path))
    if found.st_uid not in (0, own):
        raise UserError(
            f"{path} belongs to uid {found.st_uid}, who could change what the daemon does",
            f"check its content, then run: chown {own} {quoted}",
        )
    if found.st_mode & OTHERS_MAY_WRITE:
        raise UserError(
            f"{path} is writable by other users (mode {stat.S_IMODE(found.st_mode):04o})",
            f"check its content, then run: chmod go-w {quoted}",
        )
