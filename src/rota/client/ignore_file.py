"""`.rotaignore`: patterns of files that are not shipped.

The rules are those of `.gitignore`, which pathspec implements; docs/reference/ship.md lists them.
Only the file in the top directory is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pathspec import GitIgnoreSpec

from rota.errors import InputError, InputLocation, UserError, shown

FILE_NAME = ".rotaignore"
DEFAULT_IGNORE = (".git", "__pycache__", ".venv", "node_modules", "*.pyc")
MAX_FILE_BYTES = 64 * 1024
PATTERN_HINT = "write a set as [abc], [a-z] or [!abc], and '\\\\' for a backslash"


class IgnoreRules:
    """Ordered patterns; the last matching pattern decides. Check parent directories first."""

    def __init__(self, spec: GitIgnoreSpec) -> None:
        self._spec = spec

    def skips(self, path: str, *, is_folder: bool) -> bool:
        """Whether to skip this path. A skipped directory is skipped with all its content."""
        return bool(self._spec.check_file(f"{path}/" if is_folder else path).include)


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
