"""The repository has pinned dependencies and no paths of one machine."""

import re
import tomllib
from pathlib import Path
from typing import Any

from tests.tidy.tree import ROOT, project_files, relative, text_files

PIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][0-9a-z.]*")
REGISTRY = re.compile(r"pypi\.[a-z]|python[h]osted|npm[j]s|index[-_]url|find[-_]links")
LOCK_FILE = re.compile(r".*[.-]lock(\..*)?|pylock\..*")


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_constraints_are_names_and_versions_only() -> None:
    assert [line for line in pins() if not PIN.fullmatch(line)] == []
    names = [line.split("==")[0] for line in pins()]
    assert names == sorted(set(names))
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_every_dependency_is_pinned() -> None:
    project = settings()["project"]
    dependencies = settings()["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    groups = [dependencies, *project["optional-dependencies"].values()]
    groups.append(settings()["build-system"]["requires"])
    required = {re.split(r"[^\w-]", each)[0] for group in groups for each in group}
    ours = {"rota", "rota-trainer"}
    assert required - ours - {pin.split("==")[0] for pin in pins()} == set()


def test_no_lock_file_is_checked_in() -> None:
    assert [relative(path) for path in project_files() if LOCK_FILE.fullmatch(path.name)] == []


def test_no_file_names_a_package_registry() -> None:
    assert [relative(path) for path, text in text_files() if REGISTRY.search(text)] == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    folders = "|".join(re.escape(str(folder)) for folder in (ROOT, Path.home()) if folder.name)
    pattern = re.compile(rf"(?<![\w.~$}}-])({folders}|/(root|work))/")
    assert [relative(path) for path, text in text_files() if pattern.search(text)] == []


def test_every_test_is_in_a_folder_that_is_run() -> None:
    folders = tuple(f"{each}/" for each in settings()["tool"]["pytest"]["ini_options"]["testpaths"])
    assert [each for each in folders if not (ROOT / each).is_dir()] == []
    tests = [relative(path) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [test for test in tests if not test.startswith(folders)] == []


def test_scripts_are_executable() -> None:
    commands = [path for path in (ROOT / "scripts").iterdir() if path.name != "environment"]
    commands.append(ROOT / ".ci" / "run")
    assert [relative(path) for path in commands if not path.stat().st_mode & 0o100] == []


def test_the_architecture_is_one_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 150
