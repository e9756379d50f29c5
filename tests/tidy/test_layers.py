"""The layers that the import linter checks cover every room, down to the rooms' own files.

The linter itself is run by scripts/test.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tidy.tree import ROOT, SOURCE, parse, python_files, relative

PURE_ROOMS = ("core", "policies")


def contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(each for each in contracts if each["name"] == name)


def test_every_room_has_its_layer() -> None:
    layers = contract("Rooms are stacked")["layers"]
    layered = {room.strip(" ()") for layer in layers for room in layer.replace(":", "|").split("|")}
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "__main__", "__pycache__"} <= layered


def test_pure_rooms_import_only_what_is_pure() -> None:
    """Says what is allowed, where the linter says what is not, and reads `__init__.py` too."""
    impure = set(contract("Core and policies are pure")["forbidden_modules"])
    allowed = (sys.stdlib_module_names - impure) | {"numpy", "scipy", "rota"}
    found = [
        f"{relative(path)} imports {package}"
        for path in python_files("src")
        if path.relative_to(SOURCE).parts[0] in PURE_ROOMS
        for package in imported_packages(path)
        if package not in allowed
    ]
    assert not found


def imported_packages(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        match node:
            case ast.Import(names=names):
                yield from (each.name.split(".")[0] for each in names)
            case ast.ImportFrom(module=str(module)):
                yield module.split(".")[0]
            case _:
                pass


FRAMEWORKS = {"torch", "lightning", "pytorch_lightning", "keras", "numpy"}
BUILT_ON_THEM = FRAMEWORKS | {"live"}


def test_the_training_library_needs_nothing_else() -> None:
    """Any image that trains can have it. A framework is imported only by the file or folder of its
    name, by files that begin with it, or by one that is built on it."""
    allowed = sys.stdlib_module_names | {"rota_trainer", "__future__"}
    found = [
        f"{relative(path)} imports {package}"
        for path in python_files("trainer")
        for package in imported_packages(path)
        if package not in allowed and not (package in FRAMEWORKS and _names(path) & BUILT_ON_THEM)
    ]
    assert not found


def _names(path: Path) -> set[str]:
    return {path.stem.split("_")[0], path.parent.name}
