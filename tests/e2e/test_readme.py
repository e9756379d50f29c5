"""The examples of the README run as written, in a folder with a script `train.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon_process import ROTA, DaemonProcess
from tests.tidy.tree import ROOT

README = (ROOT / "README.md").read_text()
TRAIN = """
import os, sys
print(os.getcwd(), os.environ["OMP_NUM_THREADS"], *sys.argv[1:])
"""


def example(language: str, word: str) -> str:
    """The only example in a language that contains a word."""
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    [text] = [each for each in found if word in each]
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def run(daemon: DaemonProcess, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "ROTA_URL": daemon.door, "PATH": path, "OMP_NUM_THREADS": "3"}
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)


SCRIPT = example("python", "JobRequest")


def test_python_example(daemon: DaemonProcess, folder: Path):
    done = run(daemon, folder, sys.executable, "-c", SCRIPT)
    assert (done.stderr, done.stdout, done.returncode) == ("", "succeeded\n", 0)
    [job] = daemon.client.jobs(limit=1).jobs
    assert (job.gpus, daemon.output(job.id)) == ("2", b"training\n")


def test_python_client_takes_along_folder_and_path(daemon: DaemonProcess, folder: Path):
    script = SCRIPT.replace("""["python", "-c", "print('training')"]""", '["python", "train.py"]')
    assert script != SCRIPT
    done = run(daemon, folder, sys.executable, "-c", script)
    assert (done.stderr, done.stdout) == ("", "succeeded\n")
    [job] = daemon.client.jobs(limit=1).jobs
    assert daemon.output(job.id).decode() == f"{folder} 3\n"


def test_job_file_example(daemon: DaemonProcess, folder: Path):
    (folder / "job.yaml").write_text(example("yaml", "job.yaml"))
    done = run(daemon, folder, *ROTA, "submit", "-f", "job.yaml", "--follow")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("training\n")
