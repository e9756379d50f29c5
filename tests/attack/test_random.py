"""Random attacks on one daemon (`harness.py`): a thousand rounds with `--long`, a few otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.seed_counts import IS_LONG, seeds
from tests.support.small_disks import can_mount
from tests.support.wall_clock import has_compiler
from tests.tidy.tree import ROOT

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs gcc")


@needs_root
@needs_compiler
@pytest.mark.parametrize("seed", seeds(10))
def test_random_attacks_do_no_harm(seed: int, tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("needs mounts")
    command = [sys.executable, "-m", "tests.attack.harness", "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--rounds", str(100 if IS_LONG else 4)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
