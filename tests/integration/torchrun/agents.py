"""Agents of torchrun, run like the workers of a job."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.integration.torchrun.scheduler import JOB, TOKEN, FakeScheduler, eventually
from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

SCRIPT = Path(__file__).with_name("train.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


class Line(NamedTuple):
    """A line of the journal: a process has done its first step."""

    generation: str
    worker: str
    rank: str
    size: str
    restarts: str


class AgentProcesses:
    """A folder with the agents that run in it."""

    def __init__(self, folder: Path, scheduler: FakeScheduler) -> None:
        self.folder = folder
        self.scheduler = scheduler
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        install(folder / "installed")

    def start(self, worker: int, *flags: str, script: tuple[str, ...] = ()) -> None:
        words = [*TORCHRUN, "--rdzv-backend", "rota", "--max-restarts", "0", *flags]
        with self.log(worker).open("wb") as log:
            self.agents[worker] = subprocess.Popen(
                [*words, str(SCRIPT), str(self.folder), *script],
                env={**environment(self.folder / "installed"), **self._place(worker)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _place(self, worker: int) -> dict[str, str]:
        return {
            "ROTA_URL": self.scheduler.url,
            "ROTA_TOKEN": TOKEN,
            "ROTA_JOB": JOB,
            "ROTA_ATTEMPT": "1",
            "ROTA_WORKER": f"{JOB}/1/{worker}/nonce",
            "OMP_NUM_THREADS": "1",
        }

    def kill(self, worker: int) -> None:
        """Kill an agent and tell the scheduler, as a supervisor does."""
        self.kill_unseen(worker)
        self.scheduler.exited(worker, 128 + signal.SIGKILL)

    def kill_unseen(self, worker: int) -> None:
        """-9, with all that it started."""
        agent = self.agents.pop(worker)
        tree = [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
        for process in tree:
            process.send_signal(signal.SIGKILL)
        assert agent.wait(PATIENCE_S) == -signal.SIGKILL

    def end(self, worker: int) -> int:
        """Wait until an agent exits; return its exit code."""
        return self.agents.pop(worker).wait(PATIENCE_S)

    def finish(self) -> None:
        """Let all processes finish, and check that all agents exit with 0."""
        (self.folder / "finish").touch()
        codes = {worker: self.end(worker) for worker in list(self.agents)}
        assert set(codes.values()) == {0}, self.logs()

    def journal(self) -> list[Line]:
        return lines_of(self.folder)

    def trains(self, generation: int, *workers: int, restarts: int = 0) -> None:
        """Wait until these workers, with ranks in this order, have done a step together."""
        size = str(len(workers))
        wanted = {
            Line(str(generation), str(worker), str(rank), size, str(restarts))
            for rank, worker in enumerate(workers)
        }

        def holds() -> bool:
            ended = [worker for worker, agent in self.agents.items() if agent.poll()]
            assert not ended, self.logs()
            return wanted <= set(self.journal())

        eventually(holds, f"{wanted}\n{self.logs()}")

    def log(self, worker: int) -> Path:
        return self.folder / f"agent-{worker}.log"

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("agent-*.log"))

    def clear(self) -> None:
        for agent in self.agents.values():
            if agent.poll() is None:
                for process in psutil.Process(agent.pid).children(recursive=True):
                    process.kill()
                agent.kill()
            agent.wait()


def lines_of(folder: Path) -> list[Line]:
    path = folder / "journal"
    return [Line(*line.split()) for line in path.read_text().splitlines()] if path.exists() else []


def environment(installed: Path) -> dict[str, str]:
    paths = [installed, ROOT / "trainer/src"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return {**kept, "PYTHONPATH": ":".join(map(str, paths))}


def install(folder: Path) -> None:
    """Write the metadata of an installed training library, in which torchrun finds entry points:
    those of the project file, whichever version this Python has installed."""
    project = tomllib.loads((ROOT / "trainer/pyproject.toml").read_text())["project"]
    place = folder / "rota_trainer-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = project["entry-points"].items()
    lines = [
        line
        for group, entries in groups
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")
