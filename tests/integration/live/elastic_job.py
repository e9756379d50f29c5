"""A live job under test: its coordinator, its workers and their journals."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration.live.coordinator import Coordinator
from tests.integration.live.step_history import check_equal, check_samples
from tests.support.timeouts import PATIENCE_S

HERE = Path(__file__).parent
SCRIPT = HERE / "worker.py"
EPOCHS = 60
SAMPLES = 203
BATCH = 24


class WorkerForkServer:
    """The process that starts workers and reports their exits."""

    def __init__(self) -> None:
        self.jobs: dict[str, ElasticJob] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdout
        assert self._process.stdout.readline(), "the nursery did not start"
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def start(self, order: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert self._process.stdout
        self._process.stdout.close()

    def _hear(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            said = json.loads(line)
            job, _, number = said["number"].partition("/")
            coordinator = self.jobs[job].coordinator
            if "pid" in said:
                coordinator.started(int(number), said["pid"])
            else:
                coordinator.ended(int(number), said["code"])


class ElasticJob:
    def __init__(
        self, fork_server: WorkerForkServer, folder: Path, options: dict[str, Any]
    ) -> None:
        self.folder = folder
        self.options = options
        self.own_options: dict[int, dict[str, Any]] = {}
        """Settings of single workers."""
        self._slowly = folder / "slowly"
        self._slowly.touch()
        self._fork_server = fork_server
        fork_server.jobs[folder.name] = self
        self.coordinator = Coordinator(folder, self._start)

    def _start(self, number: int, env: dict[str, str]) -> None:
        options = {**self.options, **self.own_options.get(number, {})}
        journal = self.folder / f"{number}.journal"
        self._fork_server.start(
            {
                "number": f"{self.folder.name}/{number}",
                "argv": [str(SCRIPT), str(journal), json.dumps(options)],
                "env": env,
                "log": str(self.folder / f"{number}.log"),
            }
        )

    def hurry(self) -> None:
        """Let the training finish."""
        self._slowly.unlink()

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """The journal entries of all workers of one kind: `step`, `done` or `ended`."""
        found: list[dict[str, Any]] = []
        for path in sorted(self.folder.glob("*.journal")):
            for line in path.read_text().splitlines():
                with suppress(ValueError):  # A worker that was killed in the middle of a line.
                    note = json.loads(line)
                    if kind in note:
                        found.append(note)
        return found

    def wait_for_steps(self, count: int) -> None:
        """Wait for this many more steps in the journals, reported or not."""
        wanted = count + self.last_step()
        wait_until(lambda: self.last_step() >= wanted)

    def wait_for_log(self, number: int, words: str) -> None:
        wait_until(lambda: words in self.log(number))

    def wait_for_checkpoint(self) -> None:
        wait_until(lambda: any(self.folder.glob("checkpoints/0*")))

    def last_step(self) -> int:
        return max((note["step"] for note in self.notes("step")), default=0)

    def log(self, number: int) -> str:
        return (self.folder / f"{number}.log").read_text()

    def _all_begun(self) -> bool:
        return self.coordinator.begun == self.coordinator.processes.keys()

    def close(self) -> None:
        self.coordinator.wait_until(self._all_begun)
        for number, process in self.coordinator.processes.items():
            if number not in self.coordinator.ends:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        self.coordinator.wait_for_ends(*self.coordinator.processes)
        self.coordinator.go_away()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll a condition that only files show."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.05)


@contextmanager
def elastic_job(
    fork_server: WorkerForkServer, folder: Path, **options: Any
) -> Iterator[ElasticJob]:
    """A live job; its worker logs are shown if the test fails."""
    found = ElasticJob(fork_server, folder, options)
    try:
        yield found
    finally:
        found.close()
        for path in sorted(folder.glob("*.log")):
            say(f"-- {path.name}\n{path.read_text()[-2500:]}")


def say(words: str) -> None:
    """Print text that pytest shows if the test fails."""
    sys.stdout.write(f"{words}\n")


def finish(job: ElasticJob, *numbers: int) -> None:
    """Check that these workers exit with 0."""
    job.hurry()
    assert job.coordinator.wait_for_ends(*numbers) == [0] * len(numbers)


def check(job: ElasticJob) -> None:
    """Check that each sample of each epoch was used once, and that all models were equal."""
    check_samples(job.notes("step"), samples=SAMPLES, batch=BATCH, epochs=EPOCHS)
    check_equal(job.notes("done"))


def alone(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """The steps of the same training without rota: one worker, from the beginning to the end."""
    folder.mkdir()
    journal = folder / "alone.journal"
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    subprocess.run(
        [sys.executable, str(SCRIPT), str(journal), json.dumps(options)],
        check=True,
        timeout=PATIENCE_S,
        cwd=folder,
        env=env,
    )
    return [json.loads(line) for line in journal.read_text().splitlines()]
