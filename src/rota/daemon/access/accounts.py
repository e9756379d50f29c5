"""The setting `accounts`: the Unix accounts that run the jobs of a cluster's users.

A cluster knows its users by name only, so the administrator maps names to accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.engines.interface import UnixAccount
from rota.errors import UserError, shown

DEFAULT_ACCOUNT = "*"
"""The name of the entry for all users without an entry of their own."""
MAX_ID = 2**31 - 1
HINT = "write NAME=UID:GID or NAME=UID:GID:GROUP+GROUP; the name * stands for all other users"


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
