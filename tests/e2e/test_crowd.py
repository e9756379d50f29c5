"""Many live trainings share few GPUs and resize each other."""

import sys
import time
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from rota.wire.jobs import FINAL_STATES, LIVE_STATES, JobRequest
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.tidy.tree import ROOT

N_GPUS = 8
EPOCHS, STEPS = 100, 400
N_FIRST, N_LATER = 3, 3
"""The jobs submitted first, and those submitted when all GPUs are in use."""
SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_RESTART_COST": "0s", "ROTA_POLICY": "afs-l"}
PROGRAM = f"""
import os, pathlib, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import live as live_training

here = pathlib.Path(os.environ["HERE"])

def say(*words):
    with (here / "journal").open("a") as journal:
        print(os.environ["ROTA_JOB"], os.environ["ROTA_ATTEMPT"], *words, file=journal)

torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(64, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
net = nn.Linear(8, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
live = live_training(
    trainer.start(), model=net, optimizer=optimizer, dataset=data, batch_size=16
)
generation = -1
for epoch in live.epochs({EPOCHS}):
    for x, y in live.batches():
        with live.step():
            if live.generation != generation:
                generation = live.generation
                say("in", generation, live.size)
            optimizer.zero_grad()
            nn.functional.mse_loss(live.model(x), y).backward()
            optimizer.step()
            if not (here / os.environ["ROTA_JOB"]).exists():
                time.sleep(0.5 / live.size)
say("ends", live.global_step)
"""


class Glance(NamedTuple):
    """The number of allocated GPUs at a time."""

    at_s: float
    held: float


class Crowd:
    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.jobs: list[str] = []
        self.glances: list[Glance] = []

    def come(self, n_jobs: int) -> list[str]:
        script = self.daemon.place / "train.py"
        script.write_text(PROGRAM)
        request = JobRequest(
            [sys.executable, str(script)],
            name="crowd",
            mode="live",
            gpus="1..4",
            gpus_per_worker=1,
            epochs=EPOCHS,
            env={"HERE": str(self.daemon.place), "PYTHONPATH": str(ROOT / "trainer" / "src")},
            workdir=str(self.daemon.place),
        )
        ids = self.daemon.client.submit_many([request] * n_jobs)
        self.jobs += ids
        return ids

    def go(self, jobs: Sequence[str]) -> None:
        """Let the jobs run without pauses to their ends."""
        for job in jobs:
            self.daemon.allow(job)
        for job in jobs:
            self.until(lambda job=job: self.daemon.state_of(job) in FINAL_STATES, f"{job} to end")
            assert self.daemon.state_of(job) == "succeeded", self.words()

    def sizes(self, job: str) -> list[int]:
        """The numbers of workers with which the job has trained, in order."""
        said = [line.words.split() for line in self.daemon.heard(job)]
        by_generation = {int(words[1]): int(words[2]) for words in said if words[0] == "in"}
        return [by_generation[each] for each in sorted(by_generation)]

    def changes(self) -> list[tuple[int, int]]:
        """The sizes before and after each resize."""
        return [change for job in self.jobs for change in pairwise(self.sizes(job))]

    def all_train(self) -> bool:
        return all(self.sizes(job) for job in self.jobs)

    def has_grown(self) -> bool:
        return any(before < after for before, after in self.changes())

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Sample the allocated GPUs while waiting."""

        def holds() -> bool:
            # One request for all jobs: a GPU may change its job between two requests.
            jobs = self.daemon.client.jobs(states=LIVE_STATES).jobs
            held = sum(job.gpus_held for job in jobs)
            assert held <= N_GPUS
            self.glances.append(Glance(time.monotonic(), held))
            return condition()

        wait_until(holds, f"{what}; {self.words()}")

    def utilisation(self) -> float:
        """The allocated part of all GPU time."""
        spans = [
            (after.at_s - before.at_s, before.held) for before, after in pairwise(self.glances)
        ]
        return sum(span * held for span, held in spans) / N_GPUS / sum(span for span, _ in spans)

    def words(self) -> str:
        """Details for the message of a failed test."""
        stories = {
            job: [each.reason for each in self.daemon.client.story(job)] for job in self.jobs
        }
        logs = {job: self.daemon.output(job)[-300:] for job in self.jobs}
        return f"{stories}; {logs}; daemon {self.daemon.log()[-2000:]}"


@pytest.fixture
def crowd() -> Generator[Crowd]:
    with temporary_daemon(gpus=f"{N_GPUS}x16GiB", settings=SETTINGS) as daemon:
        daemon.up()
        yield Crowd(daemon)


def test_all_jobs_finish_and_share_the_gpus(crowd: Crowd) -> None:
    first = crowd.come(N_FIRST)
    crowd.until(crowd.all_train, "the first to train")
    assert crowd.glances[-1].held == N_GPUS
    later = crowd.come(N_LATER)
    crowd.until(crowd.all_train, "all to train")
    crowd.go(later)
    crowd.until(crowd.has_grown, "those who are left to grow")
    crowd.go(first)
    for job in crowd.jobs:
        ends = {line.words for line in crowd.daemon.heard(job) if line.words.startswith("ends")}
        assert ends == {f"ends {STEPS}"}
        assert len(crowd.daemon.starts(job)) == 1
    grown = sum(before < after for before, after in crowd.changes())
    shrunk = sum(before > after for before, after in crowd.changes())
    used = crowd.utilisation()
    sys.stdout.write(f"{grown} times grown, {shrunk} times shrunk, {used:.0%} of GPU time held\n")
    assert min(grown, shrunk, used) > 0
