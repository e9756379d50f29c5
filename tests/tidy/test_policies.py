"""Every policy says what it does, in its class and in the reference."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, SOURCE, parse, relative

REFERENCE = ROOT / "docs" / "reference" / "policies.md"


def policies() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted((SOURCE / "policies").glob("*.py")):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and is_policy(node):
                yield path, node


def is_policy(node: ast.ClassDef) -> bool:
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return "size" in methods and not node.name.startswith("_")


def test_every_policy_has_a_docstring() -> None:
    silent = [
        f"{relative(path)}: {node.name}" for path, node in policies() if not ast.get_docstring(node)
    ]
    assert not silent


def test_every_policy_is_in_the_reference() -> None:
    reference = REFERENCE.read_text() if REFERENCE.exists() else ""
    names = {path.stem.replace("_", "-") for path, _ in policies()}
    missing = sorted(name for name in names if f"`{name}`" not in reference)
    assert not missing, f"describe these in {relative(REFERENCE)}: {missing}"
