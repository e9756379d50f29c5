"""A DDP job of two workers, of which one is killed."""

import importlib.util
import signal
import sys
import zipfile
from pathlib import Path

import pytest

from rota.engines.local.supervisor import proc
from rota.wire.jobs import JobRequest, LogRange
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.tidy.tree import ROOT

EPOCHS = 6
SCRIPT = ROOT / "examples" / "image_ddp.py"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: nothing here trains"
)


def train(daemon: DaemonProcess, name: str, *flags: str) -> str:
    sizes = [f"--epochs={EPOCHS}", "--pictures=64", f"--weights={daemon.place / name}"]
    request = JobRequest(
        [sys.executable, str(SCRIPT), *sizes, *flags],
        name=name,
        gpus="2",
        gpus_per_worker=1,
        retries=1,
        env={"HERE": str(daemon.place), "PYTHONPATH": str(ROOT / "trainer" / "src")},
        workdir=str(daemon.place),
    )
    return daemon.client.submit(request)


def epochs_said(daemon: DaemonProcess, job: str, *, attempt: int) -> list[int]:
    """Epochs that the first worker printed."""
    where = LogRange(worker=0, attempt=attempt)
    text = b"".join(daemon.client.log_bytes(job, where)).decode()
    lines = [line.split() for line in text.splitlines() if line.startswith("epoch ")]
    return [int(words[1]) for words in lines]


def tensors(path: Path) -> dict[str, bytes]:
    """The content of a torch file, without the name under which it was saved."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if "/data/" in name]
        return {name.partition("/")[2]: archive.read(name) for name in names}


def test_killed_worker_ends_the_attempt_and_the_next_one_resumes_from_the_checkpoint(
    daemon: DaemonProcess,
) -> None:
    undisturbed = train(daemon, "undisturbed")
    assert daemon.ends(undisturbed).state == "succeeded", daemon.output(undisturbed)
    job = train(daemon, "killed", "--seconds-per-epoch=1")
    wait_until(lambda: daemon.client.show(job).epochs_saved >= 2, "a checkpoint of two epochs")
    for pid, start_ticks in daemon.processes(job, worker=1).items():
        proc.send(pid, start_ticks, number=signal.SIGKILL)
    ended = daemon.ends(job)
    assert (ended.state, ended.attempt, ended.epochs_done) == ("succeeded", 2, EPOCHS)
    first, second = (epochs_said(daemon, job, attempt=attempt) for attempt in (1, 2))
    assert first == list(range(1, len(first) + 1))
    assert second == list(range(second[0], EPOCHS + 1))
    # The script prints the end of an epoch just before it saves the epoch.
    assert second[0] > 2, "it began anew"
    assert second[0] - first[-1] in (0, 1)
    killed, resumed = daemon.client.show(job).attempts
    assert [worker.exit_code for worker in resumed.workers] == [0, 0]
    assert all(worker.exit_code for worker in killed.workers), killed
    assert tensors(daemon.place / "killed") == tensors(daemon.place / "undisturbed") != {}
