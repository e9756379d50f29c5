"""Modules have meaningful names, reminders name an issue, and one package prints."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import parse, python_files, relative, text_of

# Words that fit any code.
EMPTY_WORDS = {"common", "data", "helpers", "info", "manager", "misc", "utils"}
CODE_FOLDERS = ("src", "trainer", "tests", "benchmarks", "examples")
PRINTERS = {"echo", "print", "secho"}
REMINDER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
REMINDER_WITH_ISSUE = re.compile(r"\bTODO\(#\d+\)")


def test_no_module_has_an_empty_name() -> None:
    empty = [
        name
        for name in map(relative, python_files("src", "trainer"))
        if EMPTY_WORDS & {word for part in name[:-3].split("/") for word in part.split("_")}
    ]
    assert not empty, f"name these modules by their subject: {empty}"


def test_only_the_output_package_prints() -> None:
    printing = [
        f"{relative(path)}:{line}"
        for path in python_files("src", "trainer")
        if not relative(path).startswith("src/rota/cli/output")
        for line in printing_lines(path)
    ]
    assert not printing, f"print through rota.cli.output: {printing}"


def printing_lines(path: Path) -> Iterator[int]:
    for node in ast.walk(parse(path)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in PRINTERS:
                yield node.lineno
            case _:
                pass


def test_reminders_name_an_issue() -> None:
    nameless = [
        f"{relative(path)}:{line}: {comment}"
        for path in python_files(*CODE_FOLDERS)
        for line, comment in comments(path)
        if REMINDER.search(REMINDER_WITH_ISSUE.sub("", comment))
    ]
    assert not nameless, f"open an issue and write TODO(#number): {nameless}"


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Those of a file that has such a word anywhere: to take all apart would take seconds."""
    if not REMINDER.search(text_of(path)):
        return
    with tokenize.open(path) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
