"""As whom the jobs of a cluster's users run: the setting `accounts`, because a cluster knows its
users by name alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.engines.base import Account
from rota.errors import UserError, shown

ANYBODY = "*"
"""Stands for everybody whom no other entry names."""
MOST = 2**31 - 1
HINT = "write NAME=UID:GID or NAME=UID:GID:GROUP+GROUP, with * for everybody else"


def parse_accounts(entries: Iterable[str]) -> Mapping[str, Account]:
    """By name."""
    found: dict[str, Account] = {}
    for entry in entries:
        name, _, numbers = entry.partition("=")
        if name.split() != [name] or name in found:
            why = "names somebody a second time" if name in found else "names nobody"
            raise UserError(f"'{shown(entry)}' {why}", HINT)
        uid, _, rest = numbers.partition(":")
        gid, _, others = rest.partition(":")
        groups = tuple(_number(each, entry) for each in others.split("+")) if others else ()
        found[name] = Account(name, uid=_number(uid, entry), gid=_number(gid, entry), groups=groups)
    return found


def _number(word: str, entry: str) -> int:
    is_number = word.isascii() and word.isdigit() and len(word) <= len(str(MOST))
    if not is_number or int(word) > MOST:
        raise UserError(f"'{shown(entry)}' is no account", HINT)
    return int(word)
