"""Lists and parses the files of the project for the tidy tests."""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rota"

_SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "node_modules"}
_KEPT_HIDDEN_FOLDERS = {".ci", ".github"}

_PUBLIC_CLASS = re.compile(r"^[ \t]*class ([^\W_]\w*)[(:\[]", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def project_files() -> tuple[Path, ...]:
    """Every file of the project, committed or not, without generated folders."""
    found: list[Path] = []
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = sorted(name for name in subfolders if _is_ours(name))
        found += (Path(folder, name) for name in sorted(names) if name != ".git")
    return tuple(found)


def _is_ours(folder_name: str) -> bool:
    is_hidden = folder_name.startswith(".") and folder_name not in _KEPT_HIDDEN_FOLDERS
    return not is_hidden and folder_name not in _SKIPPED_FOLDERS


def text_files() -> Iterator[tuple[Path, str]]:
    for path in project_files():
        try:
            yield path, text_of(path)
        except UnicodeDecodeError:
            continue


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def python_files(*folders: str) -> list[Path]:
    return sorted(
        path
        for path in project_files()
        if path.suffix == ".py" and relative(path).split("/")[0] in folders
    )


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


def public_classes(path: Path) -> list[str]:
    """The names of the public classes of a module. Parsing the module would take longer."""
    return _PUBLIC_CLASS.findall(text_of(path))


@dataclass(frozen=True)
class NamedFunction:
    """A function with its name in the lists of exceptions: `file.py:Class.method`."""

    place: str
    node: Function
    owner: ast.ClassDef | None

    @property
    def n_lines(self) -> int:
        assert self.node.end_lineno is not None
        return self.node.end_lineno - self.node.lineno + 1

    @property
    def is_of_protocol(self) -> bool:
        bases = [ast.unparse(base) for base in self.owner.bases] if self.owner else []
        return any(base.split("[")[0].endswith("Protocol") for base in bases)


def functions(path: Path) -> Iterator[NamedFunction]:
    yield from _functions_in(parse(path), f"{relative(path)}:", owner=None)


def _functions_in(
    node: ast.AST, prefix: str, *, owner: ast.ClassDef | None
) -> Iterator[NamedFunction]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield NamedFunction(prefix + child.name, child, owner)
                yield from _functions_in(child, f"{prefix}{child.name}.", owner=None)
            case ast.ClassDef():
                yield from _functions_in(child, f"{prefix}{child.name}.", owner=child)
            case _:
                yield from _functions_in(child, prefix, owner=owner)
