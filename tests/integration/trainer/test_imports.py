"""The cost of importing the library, and its compatibility with Python 3.9."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.trainer.fake_daemon import LIBRARY, environment, run_training_script

HEAVY = {
    *("asyncio", "dataclasses", "email", "hashlib", "http", "inspect", "json", "logging"),
    *("multiprocessing", "pathlib", "shutil", "socket", "ssl", "subprocess", "tempfile", "urllib"),
    *("keras", "lightning", "numpy", "torch"),
}


def test_no_large_module_is_imported() -> None:
    script = "import sys, rota_trainer; print(*sys.modules)"
    # Without `site`: imports of the start-up of this machine do not count.
    loaded = subprocess.check_output([sys.executable, "-S", "-c", script], env=environment())
    assert not HEAVY & set(loaded.decode().split())


def find_old_python() -> str | None:
    found = sorted(Path.home().glob(".pyenv/versions/3.9*/bin/python"))
    for candidate in ("python3.9", *map(str, found)):
        try:
            version = subprocess.check_output([candidate, "-c", "import sys; print(sys.version)"])
        except (OSError, subprocess.CalledProcessError):
            continue
        if version.startswith(b"3.9"):
            return candidate
    return None


@pytest.fixture
def old_python() -> str:
    found = find_old_python()
    if found is None:
        pytest.skip("there is no Python 3.9 on this machine")
    return found


FRAMEWORKS = {"torch", "lightning", "keras"}
IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_every_module_compiles_on_python_3_9(old_python: str, tmp_path: Path) -> None:
    files = sorted((LIBRARY / "rota_trainer").rglob("*.py"))
    compiled = "import sys; [compile(open(f).read(), f, 'exec') for f in sys.argv[1:]]"
    subprocess.run([old_python, "-c", compiled, *map(str, files)], check=True)
    modules = [
        f"rota_trainer.{file.stem}"
        for file in files
        if file.parent.name == "rota_trainer"
        and file.stem.split("_")[0] not in FRAMEWORKS
        and not file.stem.startswith("__")
    ]
    done = run_training_script(tmp_path, IMPORT_ALL, *modules, env=environment(), python=old_python)
    assert (done.returncode, done.stderr) == (0, "")


TRAIN = """
import os, signal
from pathlib import Path
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints", keep=2)
state = []

def save(path):
    path.mkdir()
    (path / "state").write_text(repr(state))

def load(path):
    state[:] = eval((path / "state").read_text())

was_restored = run.restore(load)
for epoch in run.epochs(3, save=save):
    for batch in run.steps(range(3), save=save):
        state.append((epoch, batch))
        if not was_restored and len(state) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
    run.report(loss=1.0)
newest = max(Path("checkpoints").iterdir())
(newest / "state" / "state").write_text("damaged")
print(state == [(epoch, batch) for epoch in range(3) for batch in range(3)])
print(len(list(Path("checkpoints").iterdir())), run.restore(load), run.epochs_done)
"""


def test_training_and_checkpoints_work_on_python_3_9(old_python: str, tmp_path: Path) -> None:
    stopped = run_training_script(tmp_path, TRAIN, env=environment(), python=old_python)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (75, "", "")
    done = run_training_script(tmp_path, TRAIN, env=environment(), python=old_python)
    assert (done.returncode, done.stdout) == (0, "True\n2 True 2\n")
    assert "is corrupt and is skipped: state/state was changed" in done.stderr


def test_wrapper_works_on_python_3_9(old_python: str) -> None:
    command = [old_python, "-m", "rota_trainer", "run", "--progress-regex", "(?P<loss>(0+)+)$"]
    program = ["--", "sh", "-c", "printf '%064d!' 0; exit 6"]
    done = subprocess.run([*command, *program], env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (6, b"0" * 64 + b"!")
    assert b"takes too long" in done.stderr
