"""The Unix accounts that run jobs: those of this machine, and those of the setting `accounts`.

A cluster knows its users by name only, so the administrator maps names to accounts there.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

from rota.engines.interface import UnixAccount
from rota.errors import UserError, shown

DEFAULT_ACCOUNT = "*"
"""The name of the entry for all users without an entry of their own."""
MAX_ID = 2**32 - 2
"""The largest uid: the last number of 32 bits means 'no user'."""
SUBUID_FILE = Path("/etc/subuid")
HINT = "write NAME=UID:GID or NAME=UID:GID:GROUP+GROUP; the name * stands for all other users"


def account_of_uid(uid: int, *, subuid_file: Path = SUBUID_FILE) -> tuple[str, int]:
    """The name and uid of the account behind a uid. A subordinate uid belongs to its owner.

    Looked up at every call: a cached name would give the rights of a deleted user to the next user
    with the same uid. The name of a uid without an account holds a colon, as no account's name can:
    an account named '1234' is not uid 1234.
    """
    name = _name_of(uid)
    if name is not None:
        return name, uid
    owner = _owner_of_subuid(uid, subuid_file)
    return owner if owner is not None else (f"uid:{uid}", uid)


def require_unchanged_account(user: str, uid: int) -> None:
    """Raises if a uid now belongs to another user than the one who submitted a job with it: the job
    would run with the rights of the new user."""
    now = _name_of(uid)
    if now is None or now == user:
        return
    try:
        is_alias = pwd.getpwnam(user).pw_uid == uid
    except KeyError:
        is_alias = False
    if not is_alias:
        raise UserError(
            f"the job was submitted by {user} with uid {uid}, which now belongs to {now}",
            "submit the job again from the present account",
        )


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


def _owner_of_subuid(uid: int, file: Path) -> tuple[str, int] | None:
    """Lines are OWNER:FIRST:COUNT, where the owner is a name or a uid. Not root: root's containers
    would be administrators."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        owner, _, numbers = line.partition(":")
        first, _, n_ids = numbers.partition(":")
        if not (_is_number(first) and _is_number(n_ids)):
            continue
        if not 0 <= uid - int(first) < int(n_ids):
            continue
        found = _account_named(owner)
        if found is not None and found[1] != 0:
            return found
    return None


def _account_named(owner: str) -> tuple[str, int] | None:
    """An account with a numeric name goes before the uid of that number, as for newuidmap."""
    try:
        return owner, pwd.getpwnam(owner).pw_uid
    except KeyError:
        name = _name_of(int(owner)) if _is_number(owner) else None
        return None if name is None else (name, int(owner))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ID))


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
    if not _is_number(text) or int(text) > MAX_ID:
        raise UserError(f"'{shown(entry)}' is not a valid account", HINT)
    return int(text)
