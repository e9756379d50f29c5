"""Contexts: the daemons that a user works with, each by a name, in one file that is theirs alone.

A context is a URL and a way to a token: kept here, in a file that is read whenever it is needed, or
the one that `kubectl` would use.
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

from rota.config import config_dir
from rota.config.files import replace_file
from rota.errors import PATH, InputError, UserError, Where, meant, shown
from rota.wire.json import load

FILE_NAME = "contexts.json"
LOCAL = "local"
"""Always there: the daemon of this machine."""
MOST_BYTES = 1024**2
LONGEST_TOKEN = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_TOKEN = re.compile(r"[!-~]+", re.ASCII)
"""What a header can carry as one word."""
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Context:
    """`kubeconfig` is the file that `kube_context` is looked up in; empty is kubectl's own."""

    url: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    is_kubernetes: bool = False
    kubeconfig: str = ""
    kube_context: str = ""

    def secret(self) -> str:
        """The token as it is now; empty if there is none."""
        if self.is_kubernetes:
            # Few have such a context, and it takes a library.
            from rota.client.kubeconfig import token_of  # noqa: PLC0415

            return checked_token(token_of(self.kubeconfig, self.kube_context), "the kubeconfig")
        if self.token_file:
            return read_token(Path(self.token_file))
        return self.token


@dataclass(frozen=True, slots=True)
class Contexts:
    """All of them. `current` is the one that was chosen; empty: none, this machine's daemon."""

    current: str = ""
    contexts: dict[str, Context] = field(default_factory=dict[str, Context])

    def get(self, name: str) -> Context:
        found = self.contexts.get(name)
        if found is None:
            known = [*self.contexts, LOCAL]
            hint = meant(name, known) or "'rota context list' shows them, 'add' makes one"
            raise UserError(f"no context '{shown(name)}'", hint)
        return found


def contexts_file() -> Path:
    return config_dir() / FILE_NAME


def read() -> Contexts:
    """What the file says; a file that others can read, or that makes no sense, is a mistake."""
    path = contexts_file()
    try:
        status = path.stat()
    except FileNotFoundError:
        return Contexts()
    where = Where(str(path))
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        what = "others may read or change it, and it holds tokens"
        raise InputError(where, what, f"make it yours alone: chmod 600 {path}")
    if status.st_size > MOST_BYTES:
        raise InputError(where, "it is larger than 1 MiB", "is it the right file?")
    try:
        found = load(Contexts, json.loads(path.read_text(encoding="utf-8")))
        _require_types(found)
    except (ValueError, TypeError, AttributeError, RecursionError):
        hint = "mend it, or remove it and add your contexts again"
        raise InputError(where, "it is not a list of contexts", hint) from None
    return found


def _require_types(found: Contexts) -> None:
    values = [found.current, *found.contexts]
    for each in found.contexts.values():
        values += [each.url, each.token, each.token_file, each.kubeconfig, each.kube_context]
    if not all(isinstance(value, str) for value in values):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError


def add(name: str, context: Context) -> None:
    """A new one; the name is free, or it is a mistake."""
    check_name(name)
    with _changing() as known:
        if name in known.contexts:
            raise UserError(
                f"there is a context '{name}' already", f"'rota context remove {name}' first"
            )
        _write(replace(known, contexts={**known.contexts, name: context}))


def use(name: str) -> None:
    with _changing() as known:
        if name != LOCAL:
            known.get(name)
        _write(replace(known, current="" if name == LOCAL else name))


def remove(name: str) -> bool:
    """Whether it was the chosen one, which nobody is now."""
    with _changing() as known:
        known.get(name)
        left = {each: context for each, context in known.contexts.items() if each != name}
        was_current = known.current == name
        _write(Contexts("" if was_current else known.current, left))
    return was_current


def check_name(name: str) -> None:
    if name == LOCAL:
        raise UserError(f"'{LOCAL}' is the daemon of this machine", "choose another name")
    if not _NAME.fullmatch(name):
        what = f"'{shown(name)}' is no name of a context"
        raise UserError(what, "use letters, digits, '.', '_' and '-', up to 63")


def read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_TOKEN + 1)
    except OSError as error:
        what = f"{shown(str(path), PATH)}: {(error.strerror or str(error)).lower()}"
        raise UserError(what, "it should hold a token and nothing else") from None
    return checked_token(text.decode("ascii", errors="replace").strip(), shown(str(path), PATH))


def checked_token(text: str, place: str) -> str:
    """Never repeats what it was given: it may be a secret all the same."""
    if not _TOKEN.fullmatch(text) or len(text) > LONGEST_TOKEN:
        raise UserError(f"{place}: there is no token in it", "a token is one word of ASCII")
    return text


@contextmanager
def _changing() -> Generator[Contexts]:
    """What is there, while nobody else changes it."""
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
