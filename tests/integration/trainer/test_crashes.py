"""Kill -9 while a checkpoint is written, and disks that are full."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.trainer.fake_daemon import environment, run_training_script, script
from tests.support.timeouts import PATIENCE_S

# Each state is the number of its epoch, in many files, so that a partial state is detected.
TRAIN = """
import sys
import rota_trainer

n_files, n_epochs = 10, int(sys.argv[1])
run = rota_trainer.start(checkpoint_dir="checkpoints")
state = [0]

def save(path):
    path.mkdir()
    for n in range(n_files):
        (path / str(n)).write_text(f"{state[0]:9d}" * 16000)
        print("wrote", flush=True)

def load(path):
    found = {(path / str(n)).read_text() for n in range(n_files)}
    assert len(found) == 1, "a state of several epochs"
    state[0] = int(found.pop()[:9])

run.restore(load)
assert run.epochs_done == state[0]
print("from", state[0], flush=True)
for epoch in run.epochs(n_epochs, save=save):
    assert epoch == state[0]
    state[0] += 1
    run.report(state=state[0])
print("done", state[0])
"""


@pytest.mark.parametrize("n_lines", [1, 13, 25, 39])
def test_kill_during_a_save_resumes_from_a_complete_checkpoint(
    n_lines: int, tmp_path: Path
) -> None:
    with script(tmp_path, TRAIN, "1000", env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "from 0\n"
        for _ in range(n_lines):
            assert process.stdout.readline() == "wrote\n"
        process.kill()
        process.wait()
    n_whole = sum(1 for path in (tmp_path / "checkpoints").iterdir() if path.name[0] != ".")
    again = run_training_script(tmp_path, TRAIN, "8", env=environment())
    first, *_, last = (line for line in again.stdout.splitlines() if line != "wrote")
    assert (again.returncode, again.stderr, last) == (0, "", "done 8")
    assert (int(first.split()[1]) > 0) == (n_whole > 0)
    left = [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name[0] == "."]
    assert left == []


def test_save_without_enough_space_is_reported_and_training_continues(tmp_path: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    (tmp_path / "train.py").write_text(TRAIN)
    process = subprocess.run(
        [sys.executable, "train.py", "3"],
        check=False,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=small_files_only,
    )
    assert process.stdout.splitlines()[-1] == "done 3"
    assert process.stderr.count("checkpoint not saved: OSError") == 1
    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk takes root and mount")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk_fails_only_the_save(small_disk: Path) -> None:
    """A state takes 1.4 MB: two fit on the disk, and a third one only after a deletion."""
    full = run_training_script(small_disk, TRAIN, "5", env=environment())
    assert full.stdout.splitlines()[-1] == "done 5"
    assert full.stderr.count("No space left on device") == 1
    again = run_training_script(small_disk, TRAIN, "6", env=environment())
    assert again.stdout.splitlines()[0] == "from 2"
