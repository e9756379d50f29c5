"""A torchrun job under a daemon, as its workers tell of it."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import join

from tests.integration.torchrun.agents import SCRIPT, TORCHRUN, environment, lines_of
from tests.support.daemon_process import DaemonProcess, wait_until

FLAGS = "--rdzv-backend rota --max-restarts 0"


class TorchrunJob:
    """A job of at most three, which waits for its size. `options` are the script's."""

    def __init__(self, daemon: DaemonProcess, *options: str, installed: Path) -> None:
        self.daemon = daemon
        self.folder = daemon.place / "run"
        self.folder.mkdir()
        path = environment(installed)["PYTHONPATH"]
        env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": str(Path(sys.executable).parent)}
        run = f"{join(TORCHRUN)} {FLAGS} {SCRIPT} {join([str(self.folder), *options])}"
        words = f'say agent "$ROTA_WORKER" $$; exec {run}'
        self.id = daemon.submit(
            words, env=env, gpus="1..3", gpus_per_worker=1, mode="torchrun", hold=True
        )

    def resize(self, size: int) -> None:
        done = self.daemon.rota("resize", self.id, str(size))
        assert done.returncode == 0, done.stderr

    def pid(self, agent: int) -> int:
        """Of an agent, where it runs."""
        said = [line.words.split() for line in self.daemon.heard(self.id)]
        return next(int(pid) for _, worker, pid in said if worker.split("/")[2] == str(agent))

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
            held = self.daemon.client.show(self.id).job.gpus_held
            is_there = generation > after and len(agents) == held == size
            return (generation, agents) if is_there else None

        try:
            return wait_until(trained, f"{size} agents")
        except AssertionError as error:
            error.add_note(f"{lines_of(self.folder)}; {self.words()}")
            raise

    def grows_and_shrinks(self) -> tuple[int, list[int]]:
        """From one to three to two, as its owner says; the last generation and its agents."""
        self.resize(1)
        self.daemon.client.release(self.id)
        generation, agents = self.train(1, after=-1)
        assert agents == [0]
        self.resize(3)
        generation, agents = self.train(3, after=generation)
        assert agents == [0, 1, 2]
        self.resize(2)
        generation, agents = self.train(2, after=generation)
        assert agents == [0, 1]
        return generation, agents

    def finishes(self) -> None:
        """In its first attempt."""
        (self.folder / "finish").touch()
        assert self.daemon.ends(self.id).state == "succeeded", self.words()
        assert len(self.daemon.starts(self.id)) == 1

    def words(self) -> str:
        story = [each.reason for each in self.daemon.client.story(self.id)]
        log = self.daemon.output(self.id).decode(errors="replace")
        return f"story {story}; log {log[-1500:]}; daemon {self.daemon.log()[-1500:]}"
