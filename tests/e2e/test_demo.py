"""The demo without torch: its final output, and its clean-up."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.engines.local.supervisor import proc
from tests.tidy.tree import ROOT

EXAMPLES = ROOT / "examples"
WITHOUT_TORCH = f"""
import runpy, sys
sys.modules["torch"] = None
runpy.run_path({str(EXAMPLES / "demo.py")!r}, run_name="__main__")
"""
INTERRUPTED = 130
LONGEST_S = 150.0


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a short path, because the path of a socket has a length limit."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def start(scratch: Path) -> "subprocess.Popen[str]":
    paths = os.pathsep.join(map(str, (EXAMPLES, ROOT / "src", ROOT / "trainer" / "src")))
    env = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": paths}
    command = [sys.executable, "-c", WITHOUT_TORCH]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def left(scratch: Path) -> tuple[list[Path], proc.ProcessTable]:
    return list(scratch.iterdir()), proc.with_variable(f"TMPDIR={scratch}")


def test_preempted_job_of_the_demo_loses_no_work(scratch: Path) -> None:
    demo = start(scratch)
    output, _ = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 0, output
    assert "7 of 7 jobs succeeded, in 8 attempts." in output, output
    assert "large was preempted after" in output
    assert "Lost work: none." in output
    assert left(scratch) == ([], {})


def test_interrupted_demo_cleans_up(scratch: Path) -> None:
    demo = start(scratch)
    assert demo.stdout is not None
    assert any("running" in line for line in demo.stdout)
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == INTERRUPTED, output
    assert left(scratch) == ([], {})
