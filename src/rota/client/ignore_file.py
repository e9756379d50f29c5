"""`.rotaignore`: patterns of files that are not shipped.

The rules are a subset of `.gitignore`; docs/reference/ship.md lists them. Only the file in the top
directory is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rota.errors import InputError, InputLocation, UserError

FILE_NAME = ".rotaignore"
DEFAULT_IGNORE = (".git", "__pycache__", ".venv", "node_modules", "*.pyc")
MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    pattern: re.Pattern[str]
    is_for_folders: bool
    is_negated: bool


class IgnoreRules:
    """Ordered rules; the last matching rule decides. Check parent directories first."""

    def __init__(self, rules: Iterable[IgnoreRule]) -> None:
        self._rules = tuple(rules)

    def skips(self, path: str, *, is_folder: bool) -> bool:
        """Whether to skip this path. A skipped directory is skipped with all its content."""
        for rule in reversed(self._rules):
            if (is_folder or not rule.is_for_folders) and rule.pattern.fullmatch(path):
                return not rule.is_negated
        return False


def ignore_of(folder: Path, lines: Iterable[str]) -> IgnoreRules:
    """Return the rules of a directory: these lines first, then those of its `.rotaignore`."""
    given = [_rule(each, InputLocation("pattern")) for each in lines]
    own = [
        _rule(line, InputLocation(str(folder / FILE_NAME), row=number))
        for number, line in enumerate(_lines(folder / FILE_NAME), start=1)
        if line.strip() and not line.startswith("#")
    ]
    return IgnoreRules([*given, *own])


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InputError(InputLocation(str(path)), f"larger than {MAX_FILE_BYTES // 1024} KiB")
        return content.decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise InputError(
            InputLocation(str(path)), "not UTF-8 text", "save the file as UTF-8"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: {reason}", "make the file readable for you") from error


def _rule(line: str, where: InputLocation) -> IgnoreRule:
    text = line.rstrip()
    is_negated = text.startswith("!")
    text = text.removeprefix("!")
    is_for_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        raise InputError(where, f"empty pattern {line!r}", "write a name or a path")
    is_from_top = "/" in text
    pattern = _translated(text.removeprefix("/"), where)
    return IgnoreRule(
        re.compile(pattern if is_from_top else f"(?:.*/)?{pattern}", re.DOTALL),
        is_for_folders=is_for_folders,
        is_negated=is_negated,
    )


_TOKEN = re.compile(r"(?:(?<=/)|^)\*\*/|/\*\*$|\*+|\?|\[!?\]?[^]/]*\]|\\.|[^\\]", re.DOTALL)


def _translated(text: str, where: InputLocation) -> str:
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise InputError(where, f"{text!r} ends with a backslash", "write '\\\\' for a backslash")
    return "".join(_regex(each, where) for each in tokens)


def _regex(token: str, where: InputLocation) -> str:
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


def _set(members: str, where: InputLocation) -> str:
    sign = "^" if members.startswith("!") else ""
    ranges = re.findall(r".-.|.", members.removeprefix("!"), re.DOTALL)
    escaped = ["-".join(map(re.escape, (each[0], each[-1]))) for each in ranges]
    try:
        return re.compile(f"(?!/)[{sign}{''.join(escaped)}]").pattern
    except re.error as error:
        hint = "write a set such as [abc], [a-z] or [!abc]"
        raise InputError(where, f"invalid character set '[{members}]'", hint) from error
