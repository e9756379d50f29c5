"""Where workers live on disk: `ROOT/jobs/JOB/ATTEMPT/WORKER/`, and beside it an empty
file in `ROOT/live/` for each worker that has not been reported as ended."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rota.engines.local import files, procs
from rota.engines.local.order import Ending, Fence, Order
from rota.errors import UserError

Lock = BinaryIO
"""An open file that holds a lock; closing it lets go."""
JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Folders:
    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"
        self._live = root / "live"

    def make(self) -> None:
        for folder in (self.jobs, self._live):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def attempt(self, job_id: str, attempt: int) -> Path:
        if not JOB_ID.fullmatch(job_id):
            raise UserError(f"job id {job_id!r} cannot name a folder")
        return self.jobs / job_id / str(attempt)

    def worker(self, fence: Fence) -> Path:
        return self.attempt(fence.job_id, fence.attempt) / str(fence.worker)

    # -- what is known of a worker --------------------------------------------------------------

    def order(self, fence: Fence) -> Order | None:
        value = files.read_json(f"{self.worker(fence)}/{files.PROGRAM}")
        return None if value is None else Order.of_json(value)

    def keeper(self, fence: Fence) -> procs.Identity | None:
        value = files.read_json(f"{self.worker(fence)}/{files.KEEPER}")
        return None if value is None else procs.Identity.of_json(value)

    def has_started(self, fence: Fence) -> bool:
        value = files.read_json(f"{self.worker(fence)}/{files.KEEPER}")
        return value is not None and bool(value["started_s"])

    def ending(self, fence: Fence) -> Ending | None:
        value = files.read_json(f"{self.worker(fence)}/{files.EXIT}")
        return None if value is None else Ending.of_json(value)

    def is_stopped(self, fence: Fence) -> bool:
        return (self.attempt(fence.job_id, fence.attempt) / files.STOP).exists()

    def is_doomed(self, fence: Fence) -> bool:
        """Whether the worker alone is to be killed."""
        return (self.worker(fence) / files.KILL).exists()

    def fences(self, job_id: str, attempt: int) -> list[Fence]:
        """All workers that an attempt ever had, in their order."""
        folder = self.attempt(job_id, attempt)
        if not folder.is_dir():
            return []
        names = [path.name for path in folder.iterdir() if path.is_dir()]
        return sorted(Fence.of_folder(f"{job_id}/{attempt}/{name}") for name in names)

    def live(self) -> list[Fence]:
        return sorted(Fence.of_flat_name(name) for name in os.listdir(self._live))

    # -- changes --------------------------------------------------------------------------------

    def prepare(self, fence: Fence, order: Order) -> None:
        """Write down what a worker is to run, unless that is written already."""
        folder = self.worker(fence)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._live / fence.flat_name).touch()
        if not (folder / files.PROGRAM).exists():
            files.write_json(f"{folder}/{files.PROGRAM}", order._asdict())

    def wish_stop(self, job_id: str, attempt: int, *, grace_s: float) -> None:
        folder = self.attempt(job_id, attempt)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_json(f"{folder}/{files.STOP}", {"grace_s": grace_s})

    def wish_kill(self, fence: Fence) -> None:
        folder = self.worker(fence)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / files.KILL).touch()

    def lock(self, fence: Fence) -> Lock | None:
        """Held by a keeper for life: None means that one is at work. Who holds it decides what
        becomes of the worker."""
        folder = self.worker(fence)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (folder / files.LOCK).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def write_ending(self, fence: Fence, ending: Ending) -> None:
        files.write_json(f"{self.worker(fence)}/{files.EXIT}", ending._asdict())

    def close(self, fence: Fence) -> None:
        """The worker's end was reported."""
        with suppress(FileNotFoundError):
            (self._live / fence.flat_name).unlink()

    def ended_before(self, before_s: float) -> list[str]:
        """Jobs of which nothing has started or ended since then."""
        return [
            job.name
            for job in self.jobs.iterdir()
            if max(each.stat().st_mtime for each in (job, *job.glob("*/*/exit.json"))) < before_s
        ]

    def forget(self, job_id: str) -> None:
        """Delete all that is left of a job, its logs included."""
        if not JOB_ID.fullmatch(job_id):
            raise UserError(f"job id {job_id!r} cannot name a folder")
        shutil.rmtree(self.jobs / job_id, ignore_errors=True)
