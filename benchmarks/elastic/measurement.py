"""Runs a training job under a real daemon and changes its size through the client."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import rota
import rota_trainer
from benchmarks.elastic.journal import Change, Stamp, change, first_step_s, hooks_s, rate_mb_s, read
from benchmarks.elastic.ways import Way
from benchmarks.one_box.rota_daemon import ROTA
from benchmarks.support.sandbox import (
    MARK,
    Sandbox,
    answers,
    answers_at,
    free_port,
    sandbox,
    wait_until,
)
from rota.client import Client, JobRequest
from rota.config.paths import SOCKET_NAME
from rota.wire.jobs import FINAL_STATES

SMALL, GREAT = 1, 2
LOOK_AGAIN_S = 0.05
SETTLE_S = 2.0
"""A training is left alone so long at each size: a stop at its very beginning is another thing."""
CHANGE_S = 75.0
"""More than any start or change takes."""
PATHS = [Path(rota.__file__).parents[1], Path(rota_trainer.__file__).parents[1]]


@dataclass(frozen=True, slots=True)
class Measured:
    grown: list[Change] = field(default_factory=list[Change])
    shrunk: list[Change] = field(default_factory=list[Change])
    rate_mb_s: float | None = None
    hooks_s: tuple[float, float] | None = None


class BenchmarkDaemon:
    """A daemon with two virtual GPUs."""

    def __init__(self, place: Sandbox) -> None:
        self._place = place
        home = place.folder / "state"
        place.environment |= {
            "ROTA_HOME": str(home),
            "ROTA_MIN_RUNTIME": "0s",
            "ROTA_RESTART_COST": "0s",
            "PYTHONPATH": _python_path(),
        }
        command = (*ROTA, "up", "--virtual-gpus", f"{GREAT}x16GiB")
        place.daemon(*command, is_ready=lambda: answers_at(home / SOCKET_NAME))
        self.client = Client(f"unix://{home / SOCKET_NAME}")

    def measure(self, way: Way, *, until_s: float) -> Measured:
        """Measure one method. Fails after the deadline, which is a time of the monotonic clock."""
        with self._training(way, until_s=until_s) as training:
            training.reaches(SMALL, after_s=0.0)
            grown: list[Change] = []
            shrunk: list[Change] = []
            for _ in range(way.rounds):
                grown.append(training.resize(SMALL, GREAT))
                if way.shrinks:
                    shrunk.append(training.resize(GREAT, SMALL))
            stamps = training.stamps()
        return Measured(grown, shrunk, rate_mb_s(stamps), hooks_s(stamps, size=GREAT))

    def close(self) -> None:
        self.client.close()
        self._place.run(*ROTA, "down", "--stop-jobs")

    @contextmanager
    def _training(self, way: Way, *, until_s: float) -> Generator[Training]:
        journal = self._place.folder / "journal"
        journal.unlink(missing_ok=True)
        endpoint = self._etcd() if way.wants_etcd else ""
        request = JobRequest(
            ["/bin/sh", "-c", way.command],
            name="elastic",
            mode=way.mode,
            gpus=f"{SMALL}..{GREAT}",
            gpus_per_worker=1,
            env=self._variables(way, journal) | {"ETCD": endpoint},
            workdir=str(self._place.folder),
            hold=True,
        )
        training = Training(
            self.client, self.client.submit(request), journal=journal, until_s=until_s
        )
        try:
            self.client.resize(training.job, SMALL)
            self.client.release(training.job)
            yield training
        finally:
            training.end()

    def _variables(self, way: Way, journal: Path) -> dict[str, str]:
        return {
            MARK: str(self._place.folder),
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": _python_path(),
            "PYTHON": sys.executable,
            "SCRIPTS": str(Path(__file__).parent),
            "JOURNAL": str(journal),
            "WIDTH": str(way.width),
            "OMP_NUM_THREADS": "1",
        }

    def _etcd(self) -> str:
        """Start an etcd server for one training job."""
        door, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
        port = int(door.rpartition(":")[2])
        self._place.daemon(
            "etcd",
            "--enable-v2",
            f"--data-dir={self._place.folder / f'etcd-{port}'}",
            f"--listen-client-urls=http://{door}",
            f"--advertise-client-urls=http://{door}",
            f"--listen-peer-urls=http://{peer}",
            f"--initial-advertise-peer-urls=http://{peer}",
            f"--initial-cluster=default=http://{peer}",
            is_ready=lambda: answers(port),
        )
        return door


class Training:
    def __init__(self, client: Client, job: str, *, journal: Path, until_s: float) -> None:
        self._client = client
        self.job = job
        self._journal = journal
        self._until_s = until_s

    def stamps(self) -> list[Stamp]:
        return read(self._journal)

    def resize(self, before: int, after: int) -> Change:
        time.sleep(SETTLE_S)
        decided_s = time.time()
        self._client.resize(self.job, after)
        self.reaches(after, after_s=decided_s)
        return change(self.stamps(), decided_s=decided_s, sizes=(before, after))

    def reaches(self, size: int, *, after_s: float) -> None:
        def has_stepped() -> bool:
            if self._state() in FINAL_STATES:
                raise RuntimeError(f"the training ended: {self._last_words()}")
            return first_step_s(self.stamps(), size=size, after_s=after_s) is not None

        what = f"first step with {size}"
        left_s = min(CHANGE_S, self._until_s - time.monotonic())
        try:
            wait_until(has_stepped, what=what, every_s=LOOK_AGAIN_S, within_s=left_s)
        except TimeoutError as late:
            raise RuntimeError(f"{late}; {self._last_words()}") from late

    def end(self) -> None:
        if self._state() not in FINAL_STATES:
            self._client.cancel(self.job)
        wait_until(
            lambda: self._state() in FINAL_STATES,
            what="end of the training",
            every_s=LOOK_AGAIN_S,
            within_s=CHANGE_S,
        )

    def _state(self) -> str:
        return self._client.show(self.job).job.state

    def _last_words(self) -> str:
        log = b"".join(self._client.log_bytes(self.job))
        return f"{self._client.show(self.job).job.reason}; {log.decode(errors='replace')[-800:]}"


@contextmanager
def benchmark_daemon() -> Generator[BenchmarkDaemon]:
    with sandbox("elastic") as place, closing(BenchmarkDaemon(place)) as made:
        yield made


def _python_path() -> str:
    """PYTHONPATH with this checkout first, then the inherited value."""
    given = os.environ.get("PYTHONPATH", "")
    root = Path(__file__).parents[2]
    return os.pathsep.join([str(each) for each in (*PATHS, root)] + ([given] if given else []))
