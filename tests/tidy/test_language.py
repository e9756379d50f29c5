"""Texts for users and names in the code use plain words.

The lists hold words that turn a sentence into a riddle, and metaphors that only the authors know.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.cli_commands import commands
from tests.tidy.tree import ROOT, parse, python_files, relative, text_files, text_of

UNCLEAR = re.compile(
    r"\b(whoever|whomever|whom|nobody|somebody|thereby|therein|whereupon|henceforth|heretofore"
    r"|so that it be|as who did|what there is|what is there|who is to|what it is that)\b",
    re.IGNORECASE,
)
METAPHORS = """
cradle crew desk doorkeeper farewell keeper nursery outpost petition shelf stranger vigil warden
"""
UNIX_NAMES = frozenset({"nobody"})
"""A string of exactly this text is the name of a Unix account."""
NO_PROSE = re.compile(r"^```.*?^```|`[^`\n]+`|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)
"""Code and targets of links."""
SOURCES = ("src", "trainer")


def test_documents_use_plain_words() -> None:
    found = [
        f"{relative(path)}: {match.group()}"
        for path, text in text_files()
        if path.suffix == ".md"
        for match in UNCLEAR.finditer(NO_PROSE.sub("", text))
    ]
    assert not found, "name the person or thing:\n" + "\n".join(found)


def test_help_uses_plain_words() -> None:
    texts = {
        f"rota {name}": [
            *(each.help, each.epilog),
            *(parameter.text for parameter in (*each.options, *each.arguments)),
        ]
        for name, each in commands().items()
    }
    found = [
        f"{name}: {match.group()}"
        for name, each in texts.items()
        for text in each
        for match in UNCLEAR.finditer(text or "")
    ]
    assert not found, found


def test_messages_use_plain_words() -> None:
    found = [
        f"{relative(path)}:{line}: {text}"
        for path in python_files(*SOURCES)
        if UNCLEAR.search(text_of(path))
        for line, text in strings(path)
        if UNCLEAR.search(text) and text not in UNIX_NAMES
    ]
    assert not found, "name the person or thing:\n" + "\n".join(found)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """All strings of a module except docstrings."""
    module = parse(path)
    docs = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docs:
                yield node.lineno, text
            case _:
                pass


def test_identifiers_are_no_metaphors() -> None:
    metaphors = set(METAPHORS.split())
    found = {
        f"{relative(path)}: {name}"
        for path in python_files(*SOURCES)
        if any(each in f"{path}\n{text_of(path)}".lower() for each in metaphors)
        for name in identifiers(path)
        if metaphors & words(name)
    }
    assert not found, "use the word of the glossary:\n" + "\n".join(sorted(found))


def identifiers(path: Path) -> Iterator[str]:
    yield from path.relative_to(ROOT).with_suffix("").parts
    with tokenize.open(path) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.NAME:
                yield token.string


def words(name: str) -> set[str]:
    """The words of a name in snake case or camel case, in the singular."""
    found = re.findall(r"[a-z]+", re.sub(r"([A-Z]+)", r"_\1", name).lower())
    return {word for each in found for word in (each, each.removesuffix("s"))}
