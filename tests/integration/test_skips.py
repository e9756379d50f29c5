"""Skipped tests are reported locally, and fail in CI, where the report is not read."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT

TESTS = {
    "test_single.py": """
import pytest

from tests.support.seed_counts import only_long

def test_part_is_missing():
    pytest.skip("no such part")

@only_long
def test_of_minutes():
    pass

@pytest.mark.xfail
def test_known_to_fail():
    raise AssertionError
""",
    "test_module.py": "import pytest; pytest.importorskip('no_such_module')",
}
OPTIONS = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]


def run(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    unset = ("CI", "ROTA_TEST_LONG")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    command = [sys.executable, "-m", "pytest", "-rs", *OPTIONS, str(tmp_path)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_tests_may_be_skipped_locally(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "3 skipped, 1 xfailed" in done.stdout
    assert "no such part" in done.stdout


def test_only_long_tests_are_skipped_in_ci(tmp_path: Path) -> None:
    done = run(tmp_path, CI="true")
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 skipped, 1 xfailed, 1 error" in done.stdout
    assert "nothing may be skipped there: Skipped: no such part" in done.stdout
    assert "could not import 'no_such_module'" in done.stdout
