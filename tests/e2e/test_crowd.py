"""Many live trainings on few GPUs: they make room for each other as they come and go."""

import sys
import time
from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from rota.wire.jobs import FINAL_STATES, JobRequest
from tests.e2e.house import House, a_house, wait_until
from tests.tidy.tree import ROOT

N_GPUS = 8
FIRST, SECOND = (24, 20, 28), (8, 6, 10)
"""Epochs of those that are there first, and of those that come when all GPUs are in use."""
STEPS_PER_EPOCH = 4
LOOK_AGAIN_S = 0.2
PATIENCE_S = 400.0
SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_RESTART_COST": "0s", "ROTA_POLICY": "afs-l"}
PROGRAM = """
import os, pathlib, sys, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import live as live_training

def say(*words):
    with (pathlib.Path(os.environ["HERE"]) / "journal").open("a") as journal:
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
for epoch in live.epochs(int(sys.argv[1])):
    for x, y in live.batches():
        with live.step():
            if live.generation != generation:
                generation = live.generation
                say("in", generation, live.size)
            optimizer.zero_grad()
            nn.functional.mse_loss(live.model(x), y).backward()
            optimizer.step()
            time.sleep(0.5 / live.size)
say("ends", live.global_step)
"""


class Glance(NamedTuple):
    """How many GPUs were held, and when."""

    at_s: float
    held: int


class Crowd:
    def __init__(self, house: House) -> None:
        self.house = house
        self.glances: list[Glance] = []
        self.jobs: dict[str, int] = {}
        """Their epochs."""

    def come(self, epochs: Sequence[int]) -> list[str]:
        script = self.house.place / "train.py"
        script.write_text(PROGRAM)
        env = {"HERE": str(self.house.place), "PYTHONPATH": str(ROOT / "trainer" / "src")}
        requests = [
            JobRequest(
                [sys.executable, str(script), str(each)],
                name="crowd",
                mode="live",
                gpus="1..4",
                gpus_per_worker=1,
                epochs=each,
                env=env,
                workdir=str(self.house.place),
            )
            for each in epochs
        ]
        ids = self.house.client.submit_many(requests)
        self.jobs |= dict(zip(ids, epochs, strict=True))
        return ids

    def sizes(self, job: str) -> list[int]:
        """With how many workers it has trained, one after the other."""
        said = [line.words.split() for line in self.house.heard(job)]
        by_generation = {int(words[1]): int(words[2]) for words in said if words[0] == "in"}
        return [by_generation[each] for each in sorted(by_generation)]

    def is_full(self) -> bool:
        """All GPUs are in use, by trainings that have begun."""
        return (
            self.look()
            == N_GPUS
            == sum(self.sizes(job)[-1] for job in self.jobs if self.sizes(job))
        )

    def look(self) -> int:
        jobs = [self.house.client.show(job).job for job in self.jobs]
        held = sum(job.gpus_held for job in jobs)
        assert held <= N_GPUS
        self.glances.append(Glance(time.monotonic(), held))
        return held

    def ends(self) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while {self.house.state_of(job) for job in self.jobs} - set(FINAL_STATES):
            assert time.monotonic() < give_up_at, self.words()
            self.look()
            time.sleep(LOOK_AGAIN_S)

    def utilisation(self) -> float:
        """The part of all GPU time that was held."""
        spans = [
            (after.at_s - before.at_s, before.held) for before, after in pairwise(self.glances)
        ]
        return sum(span * held for span, held in spans) / N_GPUS / sum(span for span, _ in spans)

    def words(self) -> str:
        """What a failed test shows."""
        stories = {job: [each.reason for each in self.house.client.story(job)] for job in self.jobs}
        logs = {job: self.house.output(job)[-300:] for job in self.jobs}
        return f"{stories}; {logs}; daemon {self.house.log()[-2000:]}"


@pytest.fixture
def crowd() -> Generator[Crowd]:
    with a_house(gpus=f"{N_GPUS}x16GiB", settings=SETTINGS) as house:
        house.up()
        yield Crowd(house)


def test_all_finish_and_share_the_gpus_on_their_way(crowd: Crowd) -> None:
    crowd.come(FIRST)
    wait_until(crowd.is_full, "all GPUs to be used")
    crowd.come(SECOND)
    crowd.ends()
    house = crowd.house
    assert {house.state_of(job) for job in crowd.jobs} == {"succeeded"}, crowd.words()
    for job, epochs in crowd.jobs.items():
        ends = {line.words for line in house.heard(job) if line.words.startswith("ends")}
        assert ends == {f"ends {epochs * STEPS_PER_EPOCH}"}
        assert len(house.starts(job)) == 1
    changes = [change for job in crowd.jobs for change in pairwise(crowd.sizes(job))]
    grown = sum(before < after for before, after in changes)
    shrunk = sum(before > after for before, after in changes)
    used = crowd.utilisation()
    sys.stdout.write(f"{grown} times grown, {shrunk} times shrunk, {used:.0%} of GPU time held\n")
    assert grown > 0
    assert shrunk > 0
    assert 0 < used <= 1
