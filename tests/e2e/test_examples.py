"""Every example under a real daemon, and a training job that is stopped and killed."""

import importlib.util
import random
import signal
import sys
from functools import partial
from typing import Any

import pytest

from rota.engines.local.supervisor import proc
from rota.wire.jobs import JobRequest, LogRange
from tests.integration.torch.attempts import SCRIPT, TrainingHistory
from tests.integration.torch.fork_server import PYTHONPATH
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.support.seed_counts import seeds
from tests.tidy.tree import ROOT

EXAMPLES = ROOT / "examples"
EPOCHS = 3
PATTERN = "epoch (?P<epoch>[0-9]+)/(?P<epochs>[0-9]+) loss (?P<loss>[0-9.]+)"
COMMANDS = {
    "image_ddp.py": [f"--epochs={EPOCHS}", "--pictures=64"],
    "transformer.py": [f"--epochs={EPOCHS}", "--sums=64"],
    "lightning_model.py": [f"--epochs={EPOCHS}", "--points=64"],
    "keras_model.py": [f"--epochs={EPOCHS}", "--points=64"],
    "numpy_model.py": [f"--epochs={EPOCHS}", "--points=64"],
    "plain_sigterm.py": [f"--epochs={EPOCHS}", "--seconds-per-epoch=0"],
}
NEEDS = {
    "image_ddp.py": "torch",
    "transformer.py": "torch",
    "lightning_model.py": "lightning",
    "keras_model.py": "keras",
}


def submit(daemon: DaemonProcess, command: list[str], **fields: Any) -> str:
    env = {"HERE": str(daemon.place), "PYTHONPATH": PYTHONPATH}
    request = JobRequest(command, env=env, workdir=str(daemon.place), **{"name": "train", **fields})
    return daemon.client.submit(request)


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: nothing here trains")


@pytest.mark.parametrize("name", COMMANDS)
def test_example_succeeds(name: str, daemon: DaemonProcess) -> None:
    need(NEEDS.get(name, "numpy"))
    command = [sys.executable, str(EXAMPLES / name), *COMMANDS[name]]
    job = submit(daemon, command, gpus="2" if name == "image_ddp.py" else "1", gpus_per_worker=1)
    ended = daemon.ends(job)
    assert ended.state == "succeeded", daemon.output(job)
    if name != "plain_sigterm.py":
        assert (ended.epochs_done, ended.epochs) == (EPOCHS, EPOCHS)


def test_wrapper_reports_for_a_program_in_another_language(daemon: DaemonProcess) -> None:
    wrapper = [sys.executable, "-m", "rota_trainer", "run", "--progress-regex", PATTERN, "--"]
    program = ["sh", str(EXAMPLES / "progress_lines.sh"), str(EPOCHS), "0.05"]
    job = submit(daemon, [*wrapper, *program])
    ended = daemon.ends(job)
    assert (ended.state, ended.epochs_done, ended.epochs) == ("succeeded", EPOCHS, EPOCHS)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("way", ["hold", "kill"])
def test_three_interruptions_do_not_change_the_result(
    way: str, seed: int, daemon: DaemonProcess
) -> None:
    need("torch")
    command = [sys.executable, str(SCRIPT), "--pause-s=0.1"]
    undisturbed = submit(daemon, [sys.executable, str(SCRIPT)])
    moments = sorted(random.Random(seed).sample(range(1, 40), 3))
    job = submit(daemon, [*command, *(["--every-step"] if way == "hold" else [])], retries=3)
    for attempt, moment in enumerate(moments, start=1):
        wait_until(partial(has_come, daemon, job, moment), f"step {moment} of {job}")
        if way == "hold":
            daemon.client.hold(job)
            daemon.reaches(job, "held", attempt=attempt)
            daemon.client.release(job)
        else:
            # Attempts without reported progress are retried a limited number of times only.
            wait_until(partial(is_known, daemon, job, attempt), f"{attempt} epochs of {job}")
            for pid, start_ticks in daemon.processes(job, attempt=attempt).items():
                proc.send(pid, start_ticks, number=signal.SIGKILL)
        daemon.reaches(job, "starting", attempt=attempt + 1)
    assert daemon.ends(job).state == "succeeded", daemon.client.story(job)
    assert daemon.ends(undisturbed).state == "succeeded"
    ended, expected = history(daemon, job), history(daemon, undisturbed)
    assert ended.steps == expected.steps
    assert (ended.end, bool(ended.end)) == (expected.end, True)
    if way == "hold":
        assert ended.n_lost == 0


def has_come(daemon: DaemonProcess, job: str, n_steps: int) -> bool:
    return len(history(daemon, job).steps) >= n_steps


def is_known(daemon: DaemonProcess, job: str, n_epochs: int) -> bool:
    return daemon.client.show(job).job.epochs_done >= n_epochs


def history(daemon: DaemonProcess, job: str) -> TrainingHistory:
    """The output of all attempts so far."""
    heard = TrainingHistory()
    for attempt in range(1, 1 + len(daemon.client.show(job).attempts)):
        said = b"".join(daemon.client.log_bytes(job, LogRange(attempt=attempt))).decode()
        for line in said.splitlines(keepends=True):
            if line.endswith("\n") and line.startswith(("begins ", "step ", "ends ")):
                heard.hear(line)
    return heard
