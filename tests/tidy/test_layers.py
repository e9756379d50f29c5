"""The layers of the import linter cover every package, and pure packages import pure code only.

`scripts/test` runs the linter itself.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tidy.tree import ROOT, SOURCE, parse, python_files, relative

PURE_PACKAGES = ("core", "policies")


def contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(each for each in contracts if each["name"] == name)


def test_every_package_has_a_layer() -> None:
    layers = contract("Layers")["layers"]
    layered = {each.strip(" ()") for layer in layers for each in layer.replace(":", "|").split("|")}
    packages = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert packages - {"__init__", "__main__", "__pycache__"} <= layered


def test_pure_packages_import_only_pure_code() -> None:
    """Checks a list of allowed imports, where the linter checks a list of forbidden ones."""
    impure = set(contract("Core and policies are pure")["forbidden_modules"])
    allowed = (sys.stdlib_module_names - impure) | {"numpy", "scipy", "rota"}
    found = [
        f"{relative(path)} imports {package}"
        for path in python_files("src")
        if path.relative_to(SOURCE).parts[0] in PURE_PACKAGES
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


def test_only_the_runtime_reaches_the_kernel() -> None:
    """Services ask the controller: a kernel that they keep is out of date after a recovery."""
    found = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files("src")
        if path.relative_to(SOURCE).parts[0] in ("api", "daemon", "operator", "server")
        and SOURCE / "daemon" / "runtime" not in path.parents
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and node.attr == "kernel"
    ]
    assert not found


SUPERVISOR = "rota.engines.local.supervisor"
SHARED_WITH_SUPERVISORS = ("rota.engines.exit_reasons", "rota.engines.logfiles.writer")
PACKAGES_ABOVE_THEM = ("rota", "rota.engines", "rota.engines.local", "rota.engines.logfiles")


def test_supervisors_import_only_the_standard_library_and_one_another() -> None:
    """Every worker pays for the memory of these modules (docs/adr/0012). The contract of the import
    linter does not check the two shared modules and the `__init__.py` files above them."""
    checked = [
        *(SOURCE / "engines/local/supervisor").glob("*.py"),
        *(_module_file(name) for name in SHARED_WITH_SUPERVISORS),
        *(SOURCE.parent / name.replace(".", "/") / "__init__.py" for name in PACKAGES_ABOVE_THEM),
    ]
    found = [
        f"{relative(path)} imports {module}"
        for path in checked
        for module in imported_modules(path)
        if module.split(".")[0] not in sys.stdlib_module_names
        and module not in SHARED_WITH_SUPERVISORS
        and not f"{module}.".startswith(f"{SUPERVISOR}.")
    ]
    assert not found


def test_the_fork_server_loads_no_other_module_of_rota() -> None:
    """Runs without site-packages, as the daemon starts it."""
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n"
        f"import {SUPERVISOR}.fork_server\n"
        "print(*[name for name in sys.modules if name.split('.')[0] == 'rota'])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True
    )
    loaded = {each for each in done.stdout.split() if not f"{each}.".startswith(f"{SUPERVISOR}.")}
    assert loaded == {*PACKAGES_ABOVE_THEM, *SHARED_WITH_SUPERVISORS}


def test_blocking_calls_run_in_bounded_pools() -> None:
    """The default pool of the event loop is one for all: work of one kind that hangs would stop all
    other work."""
    found = [
        f"{relative(path)}: {node.attr}"
        for path in python_files("src")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and node.attr in ("to_thread", "run_in_executor")
    ]
    assert not found, "use rota.thread_pools"


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, level=level):
                # `from package import name` may import a module of the package.
                yield module if module and not level else f"relative import in {path.name}"
            case _:
                pass


def _module_file(name: str) -> Path:
    return SOURCE.parent / f"{name.replace('.', '/')}.py"


FRAMEWORKS = {"torch", "lightning", "pytorch_lightning", "keras", "numpy"}
BUILT_ON_THEM = FRAMEWORKS | {"elastic", "torchrun"}


def test_the_training_library_needs_nothing_else() -> None:
    """A training image needs no other package. A framework is imported only by a module or package
    that has its name, or by a package that is built on it."""
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
