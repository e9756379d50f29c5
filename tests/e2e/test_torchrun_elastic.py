"""A torchrun job under a real daemon: its owner changes its size, and its agents are killed."""

import signal
import sys
from collections.abc import Generator
from pathlib import Path
from shlex import join

import psutil
import pytest

from rota.engines.local.order import Fence
from tests.e2e.house import House, a_house, wait_until
from tests.integration.torchrun.agents import SCRIPT, TORCHRUN, environment, install, lines_of

FLAGS = "--rdzv-backend rota --max-restarts 0"
SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_RESTART_COST": "0s"}


@pytest.fixture
def house() -> Generator[House]:
    with a_house(gpus="3x16GiB", settings=SETTINGS) as house:
        install(house.home / "installed")
        house.up()
        yield house


class Agents:
    """A job of at most three, which waits for its size."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.folder = house.home / "run"
        self.folder.mkdir()
        path = environment(house.home / "installed")["PYTHONPATH"]
        env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": str(Path(sys.executable).parent)}
        words = f"exec {join(TORCHRUN)} {FLAGS} {SCRIPT} {self.folder}"
        self.id = house.submit(
            words, env=env, gpus="1..3", gpus_per_worker=1, mode="torchrun", hold=True
        )

    def resize(self, size: int) -> None:
        done = self.house.rota("resize", self.id, str(size))
        assert done.returncode == 0, done.stderr

    def newest(self) -> tuple[int, list[int]]:
        """The newest generation whose processes have all done a step, and its agents by rank."""
        lines = lines_of(self.folder)
        for generation in sorted({int(line.generation) for line in lines}, reverse=True):
            here = {int(line.rank): line for line in lines if int(line.generation) == generation}
            if len(here) == int(here[min(here)].size):
                return generation, [int(here[rank].worker) for rank in sorted(here)]
        return -1, []

    def train(self, size: int, *, after: int) -> tuple[int, list[int]]:
        """Waits until so many do, in a generation after this one, and the daemon knows of it."""

        def trained() -> tuple[int, list[int]] | None:
            generation, agents = self.newest()
            held = self.house.client.show(self.id).job.gpus_held
            is_there = generation > after and len(agents) == held == size
            return (generation, agents) if is_there else None

        return wait_until(trained, f"{size} agents; {lines_of(self.folder)}; {self.words()}")

    def kill(self, agent: int) -> None:
        """-9, and nothing else: what it started is its keeper's business."""
        keeper = self.house.folders.keeper(Fence(self.id, 1, agent))
        assert keeper is not None
        (process,) = psutil.Process(keeper.pid).children()
        process.send_signal(signal.SIGKILL)

    def words(self) -> str:
        story = [each.reason for each in self.house.client.story(self.id)]
        log = self.house.output(self.id).decode(errors="replace")
        return f"story {story}; log {log[-1500:]}; daemon {self.house.log()[-1500:]}"


def test_the_owner_grows_and_shrinks_it_and_it_outlives_its_agents(house: House) -> None:
    job = Agents(house)
    job.resize(1)
    house.client.release(job.id)
    generation, agents = job.train(1, after=-1)
    assert agents == [0]
    job.resize(3)
    generation, agents = job.train(3, after=generation)
    assert agents == [0, 1, 2]
    job.resize(2)
    generation, agents = job.train(2, after=generation)
    assert agents == [0, 1]
    for victim in (0, 1):
        job.kill(victim)
        generation, agents = job.train(2, after=generation)
        assert victim not in agents
    (job.folder / "finish").touch()
    assert house.ends(job.id).state == "succeeded", job.words()
    assert len(house.starts(job.id)) == 1
