"""A live training under a daemon, in steps that take a while."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rota.wire.jobs import JobRequest
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.tidy.tree import ROOT

EPOCHS = 400
"""More than it is ever left time for."""
SAMPLES, STEPS = 64, 4
"""Of an epoch."""
PROGRAM = f"""
import os, pathlib, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import live as live_training

here = pathlib.Path(os.environ["HERE"])

number = os.environ["ROTA_WORKER"].split("/")[2]
attempt = os.environ["ROTA_ATTEMPT"]
notes = (here / f"steps-{{attempt}}-{{number}}").open("a", buffering=1)

def say(*words):
    with (here / "journal").open("a") as journal:
        print(os.environ["ROTA_JOB"], attempt, number, *words, file=journal)

torch.manual_seed(0)
torch.set_num_threads(1)
samples = here / "samples"
inputs = torch.randn(int(samples.read_text()) if samples.exists() else {SAMPLES}, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True), torch.arange(len(inputs)))
net = nn.Linear(8, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
run = trainer.start()
say("comes", os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid())
live = live_training(run, model=net, optimizer=optimizer, dataset=data, batch_size=16)
generation = -1
for epoch in live.epochs({EPOCHS}):
    if (here / "last").exists() and epoch >= int((here / "last").read_text()):
        break
    for x, y, which in live.batches():
        if live.generation != generation:
            generation = live.generation
            say("in", generation, live.size, live.rank, live.global_step)
        step = live.global_step
        print("takes", generation, step, epoch, *which.tolist(), file=notes)
        with live.step():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(live.model(x), y)
            loss.backward()
            optimizer.step()
        if live.global_step > step:
            print("did", generation, step, file=notes)
        time.sleep(0.6 / live.size)  # Who grows is to be faster for it.
say("ends", live.global_step)
"""

RESIZES = ("Plan", "WorkersExited", "WorkersLost", "MembershipChanged")
"""After which the members of a running job are others, or will be: the first is an intention."""


class JoinedWorker(NamedTuple):
    worker: int
    attempt: int
    generation: int
    size: int
    rank: int
    step: int


class StartedWorker(NamedTuple):
    gpus: str
    pid: int


class LiveJob:
    def __init__(self, daemon: DaemonProcess, **fields: Any) -> None:
        self.daemon = daemon
        script = daemon.place / "train.py"
        script.write_text(PROGRAM)
        env = {"HERE": str(daemon.place), "PYTHONPATH": str(ROOT / "trainer" / "src")}
        request = JobRequest(
            [sys.executable, str(script)],
            env=env,
            workdir=str(daemon.place),
            # What one test measures, or hurries through, is not for the others to learn from.
            category=os.urandom(8).hex(),
            **{"name": "live", "mode": "live", "gpus": "1..4", "grace": "20s", **fields},
        )
        self.id = daemon.client.submit(request)

    # -- what its workers said ------------------------------------------------------------------

    def joined(self, *, attempt: int = 1) -> list[JoinedWorker]:
        found: list[JoinedWorker] = []
        for line in self.daemon.heard(self.id):
            number, kind, *words = line.words.split()
            if kind == "in" and line.attempt == attempt:
                found.append(JoinedWorker(int(number), attempt, *map(int, words)))
        return found

    def came(self, *, attempt: int = 1) -> dict[int, StartedWorker]:
        """Workers that have started, by number."""
        found: dict[int, StartedWorker] = {}
        for line in self.daemon.heard(self.id):
            number, kind, *words = line.words.split(" ")
            if kind == "comes" and line.attempt == attempt:
                found[int(number)] = StartedWorker(words[0], int(words[1]))
        return found

    def members(self, *, attempt: int = 1) -> list[int]:
        """Of the newest generation that all have joined, by rank."""
        joined = self.joined(attempt=attempt)
        for generation in sorted({each.generation for each in joined}, reverse=True):
            here = {each.rank: each for each in joined if each.generation == generation}
            if len(here) == next(iter(here.values())).size:
                return [here[rank].worker for rank in sorted(here)]
        return []

    def trains_with(
        self, n_workers: int, *, attempt: int = 1, without: Sequence[int] = ()
    ) -> list[int]:
        """Waits until so many train together, and not these; their numbers by rank."""

        def do_train() -> bool:
            members = self.members(attempt=attempt)
            is_so = len(members) == n_workers and not set(members).intersection(without)
            return is_so and self.is_settled()

        try:
            wait_until(do_train, f"{n_workers} workers")
        except AssertionError as error:
            error.add_note(f"{self.joined(attempt=attempt)}; {self.words()}")
            raise
        return self.members(attempt=attempt)

    def is_settled(self) -> bool:
        """The scheduler has heard that the newest generation stands."""
        held = self.daemon.client.show(self.id).job.gpus_held
        resizes = [
            each.cause
            for each in self.daemon.client.story(self.id)
            if each.before == each.after == "running" and each.cause in RESIZES
        ]
        is_under_way = resizes[-1:] == [RESIZES[0]]
        return not is_under_way and held == len(self.members(attempt=self.attempt()))

    def _notes(self, kind: str, *, attempt: int = 1) -> Iterator[list[int]]:
        """The notes of the workers about their steps. The last line may be incomplete."""
        for path in self.daemon.place.glob(f"steps-{attempt}-*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.startswith(kind) and line.endswith("\n"):
                    yield [int(each) for each in line.split()[1:]]

    def did(self) -> list[tuple[int, int]]:
        """Generations and the steps that they finished, in the first attempt."""
        return [(generation, step) for generation, step in self._notes("did")]

    def uses(self) -> Counter[tuple[int, int]]:
        """How often each sample of each epoch was learnt from. A step that was undone is done once
        more by a later generation."""
        did: dict[int, int] = {}
        for generation, step in self.did():
            did[step] = max(generation, did.get(step, -1))
        return Counter(
            (epoch, sample)
            for generation, step, epoch, *samples in self._notes("takes")
            if did.get(step) == generation
            for sample in samples
        )

    # -- what the daemon says -------------------------------------------------------------------

    def attempt(self) -> int:
        return self.daemon.client.show(self.id).job.attempt

    def n_given(self) -> int:
        """How many generations its workers were told of by the daemons so far."""
        lines = self.daemon.log().splitlines()
        return sum(self.id in line and "generation sent" in line for line in lines)

    def reasons(self) -> list[str]:
        return [each.reason for each in self.daemon.client.story(self.id)]

    def words(self) -> str:
        """What a failed test shows."""
        log = self.daemon.output(self.id).decode(errors="replace")
        return f"story {self.reasons()}; log {log[-1500:]}; daemon {self.daemon.log()[-1500:]}"

    def finishes(self) -> None:
        """Well, in a few epochs, which all know of before they come to the last: at the same step
        in all that were left, and with each sample once in each epoch unless it was stopped on the
        way."""
        notes = self._notes("takes", attempt=self.attempt())
        n_epochs = 3 + max(epoch for _, _, epoch, *_ in notes)
        (self.daemon.place / "next").write_text(str(n_epochs))
        (self.daemon.place / "next").rename(self.daemon.place / "last")
        ended = self.daemon.ends(self.id)
        assert ended.state == "succeeded", self.words()
        said = [line.words.split() for line in self.daemon.heard(self.id)]
        assert {words[2] for words in said if words[1] == "ends"} == {str(n_epochs * STEPS)}
        if ended.attempt == 1:
            uses = self.uses()
            assert set(uses.values()) == {1}, [each for each, n in uses.items() if n != 1][:20]
            assert len(uses) == n_epochs * SAMPLES
