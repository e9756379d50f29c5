"""Packages are small enough to be a table of contents, and say what they are for."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.tidy.ratchet import complaints
from tests.tidy.tree import parse, public_classes, python_files, relative

MODULES_ENFORCED = 15
MIN_DOCSTRING_LINES = 3
MAX_DOCSTRING_LINES = 10
PUBLIC_TWICE = frozenset({"RotaCallback"})
"""Public import paths of two frameworks: `rota_trainer.keras` and `rota_trainer.lightning`."""


def packages() -> dict[Path, list[Path]]:
    """Folder -> its modules without `__init__` and `__main__`."""
    files = python_files("src", "trainer")
    folders = {path.parent for path in files if path.name == "__init__.py"}
    return {
        folder: [path for path in files if path.parent == folder and not path.name.startswith("__")]
        for folder in sorted(folders)
    }


def test_no_package_has_many_modules() -> None:
    measured = {relative(folder): len(modules) for folder, modules in packages().items()}
    found = complaints(measured=measured, wanted=MODULES_ENFORCED, exceptions={})
    assert not found, found


def test_every_package_says_what_it_is_for() -> None:
    lengths = {
        relative(folder): len((ast.get_docstring(parse(folder / "__init__.py")) or "").splitlines())
        for folder in packages()
    }
    found = {
        name: n_lines
        for name, n_lines in lengths.items()
        if not MIN_DOCSTRING_LINES <= n_lines <= MAX_DOCSTRING_LINES
    }
    limits = f"{MIN_DOCSTRING_LINES} to {MAX_DOCSTRING_LINES} lines"
    assert not found, f"write a docstring of {limits}; these have: {found}"


def test_a_class_name_is_defined_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in python_files("src", "trainer"):
        for name in public_classes(path):
            places[name].append(relative(path))
    twice = {
        name: found for name, found in places.items() if len(found) > 1 and name not in PUBLIC_TWICE
    }
    assert not twice, f"one name, one meaning: {twice}"
