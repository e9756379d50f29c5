"""Contexts: the named daemons of a user, in a file that only this user can read.

A context is a URL and the source of a token: the contexts file itself, a token file that is read on
each use, or the token that `kubectl` would use.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rota.config.atomic_file import replace_file
from rota.config.paths import LOCAL, config_dir, contexts_file
from rota.errors import (
    MAX_SHOWN_PATH_CHARS,
    InputError,
    InputLocation,
    UserError,
    did_you_mean,
    shown,
)
from rota.wire.codec import load

MOST_BYTES = 1024**2
LONGEST_TOKEN = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_TOKEN = re.compile(r"[!-~]+", re.ASCII)
"""Characters that an HTTP header can carry as one word."""
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Context:
    """One daemon. `kubeconfig` is the file with `kube_context`; empty: the file of kubectl.
    `allows_plain_http`: the token may go to a `http://` URL."""

    url: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    is_kubernetes: bool = False
    kubeconfig: str = ""
    kube_context: str = ""
    allows_plain_http: bool = False

    def secret(self) -> str:
        """Return the current token; empty if there is none."""
        if self.is_kubernetes:
            # Imported here, because it needs a library and few contexts use it.
            from rota.client.kube_token import token_of  # noqa: PLC0415

            return checked_token(token_of(self.kubeconfig, self.kube_context), "the kubeconfig")
        if self.token_file:
            return read_token(Path(self.token_file))
        return self.token


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts. `current` is the chosen one; empty: the daemon of this machine."""

    current: str = ""
    contexts: dict[str, Context] = field(default_factory=dict[str, Context])

    def get(self, name: str) -> Context:
        found = self.contexts.get(name)
        if found is None:
            known = [*self.contexts, LOCAL]
            hint = did_you_mean(name, known) or "run 'rota context list' to list the contexts"
            raise UserError(f"unknown context '{shown(name)}'", hint)
        return found


def read() -> Contexts:
    """Read the contexts file. Raises `InputError` if others can read it or it is invalid."""
    path = contexts_file()
    try:
        status = path.stat()
    except FileNotFoundError:
        return Contexts()
    where = InputLocation(str(path))
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        what = "the file holds tokens, but other users can read or change it"
        raise InputError(where, what, f"run: chmod 600 {path}")
    if status.st_size > MOST_BYTES:
        raise InputError(where, "larger than 1 MiB", "check that this is the right file")
    try:
        found = load(Contexts, json.loads(path.read_text(encoding="utf-8")))
        _require_types(found)
    except (ValueError, TypeError, AttributeError, RecursionError):
        hint = "fix the file, or delete it and add your contexts again"
        raise InputError(where, "not a valid contexts file", hint) from None
    return found


def _require_types(found: Contexts) -> None:
    values = [found.current, *found.contexts]
    for each in found.contexts.values():
        values += [each.url, each.token, each.token_file, each.kubeconfig, each.kube_context]
    if not all(isinstance(value, str) for value in values):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError
    if any(each.allows_plain_http not in (True, False) for each in found.contexts.values()):
        raise TypeError


def add(name: str, context: Context) -> None:
    """Add a context. Raises `UserError` if the name is taken."""
    check_name(name)
    with _changing() as known:
        if name in known.contexts:
            raise UserError(
                f"context '{name}' already exists", f"run 'rota context remove {name}' first"
            )
        _write(replace(known, contexts={**known.contexts, name: context}))


def use(name: str) -> None:
    with _changing() as known:
        if name != LOCAL:
            known.get(name)
        _write(replace(known, current="" if name == LOCAL else name))


def remove(name: str) -> bool:
    """Remove a context; return whether it was the chosen one. Then no context is chosen."""
    with _changing() as known:
        known.get(name)
        left = {each: context for each, context in known.contexts.items() if each != name}
        was_current = known.current == name
        _write(Contexts("" if was_current else known.current, left))
    return was_current


def check_name(name: str) -> None:
    if name == LOCAL:
        raise UserError(
            f"context name '{LOCAL}' is reserved for the daemon of this machine",
            "choose another name",
        )
    if not _NAME.fullmatch(name):
        what = f"invalid context name '{shown(name)}'"
        raise UserError(what, "use up to 63 letters, digits, '.', '_' and '-'")


def read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_TOKEN + 1)
    except OSError as error:
        what = f"{shown(str(path), MAX_SHOWN_PATH_CHARS)}: {(error.strerror or str(error)).lower()}"
        raise UserError(what, "name a file that holds a token and nothing else") from None
    return checked_token(
        text.decode("ascii", errors="replace").strip(), shown(str(path), MAX_SHOWN_PATH_CHARS)
    )


def checked_token(text: str, source: str) -> str:
    """Return the token, or raise `UserError`. The error never repeats the text: even an invalid
    token may be a secret."""
    if not _TOKEN.fullmatch(text) or len(text) > LONGEST_TOKEN:
        raise UserError(f"{source}: no valid token", "a token is one word of ASCII characters")
    return text


@contextmanager
def _changing() -> Generator[Contexts]:
    """Return the contexts and lock the file against other writers."""
    folder = config_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield read()
    finally:
        os.close(lock)


def _write(contexts: Contexts) -> None:
    body = {
        "current": contexts.current,
        "contexts": {name: asdict(each) for name, each in sorted(contexts.contexts.items())},
    }
    replace_file(contexts_file(), json.dumps(body, indent=2) + "\n")
