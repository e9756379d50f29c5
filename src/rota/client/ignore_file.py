"""Which files of a folder are not shipped: the lines of `.rotaignore`.

The rules are a part of those of `.gitignore`, spelled out in docs/reference/ship.md. Only the file
at the top of the folder is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rota.errors import InputError, UserError, Where

FILE_NAME = ".rotaignore"
DEFAULT_IGNORE = (".git", "__pycache__", ".venv", "node_modules", "*.pyc")
MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: re.Pattern[str]
    is_for_folders: bool
    is_negated: bool


class Ignore:
    """Asked about every file and folder, from the top down; the last line that fits decides."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)

    def skips(self, path: str, *, is_folder: bool) -> bool:
        """Whether it is left out; of a folder, with all that is in it."""
        for rule in reversed(self._rules):
            if (is_folder or not rule.is_for_folders) and rule.pattern.fullmatch(path):
                return not rule.is_negated
        return False


def ignore_of(folder: Path, lines: Iterable[str]) -> Ignore:
    """What is left out of a folder: by these lines first, then by those of its own file."""
    given = [_rule(each, Where("pattern")) for each in lines]
    own = [
        _rule(line, Where(str(folder / FILE_NAME), row=number))
        for number, line in enumerate(_lines(folder / FILE_NAME), start=1)
        if line.strip() and not line.startswith("#")
    ]
    return Ignore([*given, *own])


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InputError(Where(str(path)), f"it is longer than {MAX_FILE_BYTES // 1024} KiB")
        return content.decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise InputError(Where(str(path)), "it is not UTF-8", "write it as UTF-8 text") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: {reason}", "make it a file that you can read") from error


def _rule(line: str, where: Where) -> Rule:
    text = line.rstrip()
    is_negated = text.startswith("!")
    text = text.removeprefix("!")
    is_for_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        raise InputError(where, f"{line!r} names nothing", "write a name or a path")
    is_from_top = "/" in text
    pattern = _translated(text.removeprefix("/"), where)
    return Rule(
        re.compile(pattern if is_from_top else f"(?:.*/)?{pattern}", re.DOTALL),
        is_for_folders=is_for_folders,
        is_negated=is_negated,
    )


_TOKEN = re.compile(r"(?:(?<=/)|^)\*\*/|/\*\*$|\*+|\?|\[!?\]?[^]/]*\]|\\.|[^\\]", re.DOTALL)


def _translated(text: str, where: Where) -> str:
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise InputError(where, f"{text!r} ends in a backslash", "write '\\\\' for a backslash")
    return "".join(_regex(each, where) for each in tokens)


def _regex(token: str, where: Where) -> str:
    if token == "**/":
        return "(?:.*/)?"
    if token == "/**":
        return "/.+"
    if token.startswith("*"):
        return "[^/]*"
    if token == "?":
        return "[^/]"
    if token.startswith("[") and len(token) > 1:
        return _set(token[1:-1], where)
    return re.escape(token[-1])


def _set(members: str, where: Where) -> str:
    sign = "^" if members.startswith("!") else ""
    ranges = re.findall(r".-.|.", members.removeprefix("!"), re.DOTALL)
    escaped = ["-".join(map(re.escape, (each[0], each[-1]))) for each in ranges]
    try:
        return re.compile(f"(?!/)[{sign}{''.join(escaped)}]").pattern
    except re.error as error:
        hint = "write it as in [abc], [a-z] or [!abc]"
        raise InputError(where, f"'[{members}]' is no set of characters", hint) from error
