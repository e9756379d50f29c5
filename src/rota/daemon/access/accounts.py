"""The Unix accounts that run jobs: those of this machine, and those of the setting `accounts`.

A cluster knows its users by name only, so the administrator maps names to accounts there.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping

from rota.engines.interface import UnixAccount
from rota.errors import UserError, shown

DEFAULT_ACCOUNT = "*"
"""The name of the entry for all users without an entry of their own."""
MAX_ID = 2**31 - 1
HINT = "write NAME=UID:GID or NAME=UID:GID:GROUP+GROUP; the name * stands for all other users"


def local_uid(user: str) -> int | None:
    """The uid of a user of this machine. None unless the daemon runs as root: all jobs of another
    daemon run as its own user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def parse_accounts(entries: Iterable[str]) -> Mapping[str, UnixAccount]:
    """Accounts by user name."""
    found: dict[str, UnixAccount] = {}
    for entry in entries:
        name, _, numbers = entry.partition("=")
        if name.split() != [name] or name in found:
            why = "names a user a second time" if name in found else "names no user"
            raise UserError(f"'{shown(entry)}' {why}", HINT)
        uid, _, rest = numbers.partition(":")
        gid, _, others = rest.partition(":")
        groups = tuple(_id(each, entry) for each in others.split("+")) if others else ()
        found[name] = UnixAccount(name, uid=_id(uid, entry), gid=_id(gid, entry), groups=groups)
    return found


def _id(text: str, entry: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ID))
    if not is_number or int(text) > MAX_ID:
        raise UserError(f"'{shown(entry)}' is not a valid account", HINT)
    return int(text)
