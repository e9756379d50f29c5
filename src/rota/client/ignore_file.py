"""`.rotaignore`: patterns of files that are not shipped.

The rules are those of `.gitignore`, which pathspec implements; docs/how-to/ship-code.md lists them.
Only the file in the top directory is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from pathspec import GitIgnoreSpec

from rota.errors import InputError, InputLocation, UserError, shown

FILE_NAME = ".rotaignore"
DEFAULT_IGNORE = (".git", "__pycache__", ".venv", "node_modules", "*.pyc")
MAX_FILE_BYTES = 64 * 1024
STAR = "[^/]*"
FOLDERS = "(?:/.+)?/"
"""How pathspec translates `*`, and `/**/` between two names."""
_WORD = r"(?:\\.|\[(?:\\.|[^\]\\])+\](?!\*)|[^\\\[\]()|/$^*+?{}])+"
_MIDDLE_STAR = re.compile(rf"{re.escape(STAR)}({_WORD})(?={re.escape(STAR)})")
_MIDDLE_FOLDERS = re.compile(rf"{re.escape(FOLDERS)}({_WORD})(?={re.escape(FOLDERS)})")
PATTERN_HINT = "write a set as [abc], [a-z] or [!abc], and '\\\\' for a backslash"


class IgnoreRules:
    """Ordered patterns; the last matching pattern decides. Check parent directories first."""

    def __init__(self, spec: GitIgnoreSpec) -> None:
        self._spec = spec
        for each in spec.patterns:
            regex = cast("re.Pattern[str] | None", each.regex)
            if regex is not None:
                each.regex = re.compile(_without_backtracking(regex.pattern))

    def skips(self, path: str, *, is_folder: bool) -> bool:
        """Whether to skip this path. A skipped directory is skipped with all its content."""
        return bool(self._spec.check_file(f"{path}/" if is_folder else path).include)


def _without_backtracking(regex: str) -> str:
    """An expression that matches the same paths in a time that grows slowly with their length.

    In pathspec's expression, each of n stars tries every length again for every length of the stars
    before it. If what follows a star is found and another star comes later, the first place where
    it was found is as good as any other: the later star covers the rest. So no star but the last
    tries again, which an atomic group `(?>...)` says. The same holds for names between two `/**/`.
    """
    regex = re.sub(rf"(?:{re.escape(STAR)}){{2,}}", lambda _: STAR, regex)
    regex = _MIDDLE_STAR.sub(r"(?>[^/]*?\1)", regex)
    return _MIDDLE_FOLDERS.sub(r"(?>(?:/.+?)??/\1(?=/))", regex)


def ignore_of(folder: Path, lines: Iterable[str]) -> IgnoreRules:
    """Return the rules of a directory: these lines first, then those of its `.rotaignore`."""
    own = [
        _checked(line, InputLocation(str(folder / FILE_NAME), row=number))
        for number, line in enumerate(_lines(folder / FILE_NAME), start=1)
        if line.strip() and not line.startswith("#")
    ]
    return IgnoreRules(GitIgnoreSpec.from_lines([*lines, *own]))


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InputError(InputLocation(str(path)), f"larger than {MAX_FILE_BYTES // 1024} KiB")
        # An editor of another system may begin the file with a byte order mark.
        return content.decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise InputError(
            InputLocation(str(path)), "not UTF-8 text", "save the file as UTF-8"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: {reason}", "make the file readable for you") from error


def _checked(line: str, where: InputLocation) -> str:
    text = line.rstrip()
    if not text.removeprefix("!").strip("/"):
        raise InputError(where, f"empty pattern '{shown(text)}'", "write a name or a path")
    if text.endswith("/**"):
        # pathspec would match the directory itself, so that `!` could include nothing in it.
        text += "/*"
    try:
        [pattern] = GitIgnoreSpec.from_lines([text]).patterns
    except (ValueError, re.error) as error:
        raise InputError(where, f"invalid pattern '{shown(text)}'", PATTERN_HINT) from error
    if pattern.include is None:
        raise InputError(where, f"pattern '{shown(text)}' matches nothing", PATTERN_HINT)
    return text
