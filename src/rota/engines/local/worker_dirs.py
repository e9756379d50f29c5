"""The directories of workers: `ROOT/jobs/JOB/ATTEMPT/WORKER/`.

`ROOT/live/` holds an empty file for each worker whose end has not been reported.
`supervisor/state_files.py` describes the files inside a worker's directory.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rota.delete_tree import delete_tree
from rota.engines.local.supervisor import proc, state_files
from rota.engines.local.supervisor.records import ExitRecord, WorkerKey, WorkerSpec
from rota.errors import UserError

Lock = BinaryIO
"""An open file that holds a lock. Closing the file releases the lock."""
JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class WorkerDirs:
    """Reads and writes the files that the daemon shares with the supervisors."""

    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"
        self._live = root / "live"

    def make(self) -> None:
        for folder in (self.jobs, self._live):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def attempt(self, job_id: str, attempt: int) -> Path:
        return Path(f"{self._job(job_id)}/{attempt}")

    def worker(self, key: WorkerKey) -> Path:
        return Path(f"{self._job(key.job_id)}/{key.attempt}/{key.worker}")

    def _job(self, job_id: str) -> str:
        if not JOB_ID.fullmatch(job_id):
            raise UserError(f"job id {job_id!r} is not a valid directory name")
        return f"{self.jobs}/{job_id}"

    # -- reading --------------------------------------------------------------------------------

    def spec(self, key: WorkerKey) -> WorkerSpec | None:
        value = state_files.read_json(f"{self.worker(key)}/{state_files.PROGRAM}")
        return None if value is None else WorkerSpec.of_json(value)

    def supervisor(self, key: WorkerKey) -> proc.ProcessIdentity | None:
        value = state_files.read_json(f"{self.worker(key)}/{state_files.SUPERVISOR_FILE}")
        return None if value is None else proc.ProcessIdentity.of_json(value)

    def has_started(self, key: WorkerKey) -> bool:
        value = state_files.read_json(f"{self.worker(key)}/{state_files.SUPERVISOR_FILE}")
        return value is not None and bool(value.get("started_s"))

    def exit_record(self, key: WorkerKey) -> ExitRecord | None:
        """None while the worker has not ended."""
        path = f"{self.worker(key)}/{state_files.EXIT}"
        if not os.path.exists(path):
            return None
        return ExitRecord.of_json(state_files.read_json(path))

    def is_stopped(self, key: WorkerKey) -> bool:
        return (self.attempt(key.job_id, key.attempt) / state_files.STOP).exists()

    def is_kill_requested(self, key: WorkerKey) -> bool:
        """Whether a kill of this worker alone was requested."""
        return (self.worker(key) / state_files.KILL).exists()

    def worker_keys(self, job_id: str, attempt: int) -> list[WorkerKey]:
        """All workers that the attempt has ever had, sorted."""
        try:
            with os.scandir(self.attempt(job_id, attempt)) as found:
                names = [each.name for each in found if each.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return _sorted_keys(f"{job_id}/{attempt}/{name}" for name in names)

    def live(self) -> list[WorkerKey]:
        """All workers whose end has not been reported."""
        return _sorted_keys(name.replace("~", "/") for name in os.listdir(self._live))

    # -- writing --------------------------------------------------------------------------------

    def prepare(self, key: WorkerKey, spec: WorkerSpec) -> None:
        """Write the worker's spec, unless it is already there."""
        folder = self.worker(key)
        for each in (folder.parent.parent, folder.parent, folder):
            with suppress(FileExistsError):
                os.mkdir(each, 0o700)
        os.close(
            os.open(self._live / key.flat_name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )
        if not os.path.exists(f"{folder}/{state_files.PROGRAM}"):
            state_files.write_json(f"{folder}/{state_files.PROGRAM}", spec._asdict())

    def request_stop(self, job_id: str, attempt: int, *, grace_s: float) -> None:
        folder = self.attempt(job_id, attempt)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_files.write_json(f"{folder}/{state_files.STOP}", {"grace_s": grace_s})

    def request_kill(self, key: WorkerKey) -> None:
        folder = self.worker(key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / state_files.KILL).touch()

    def lock(self, key: WorkerKey) -> Lock | None:
        """Acquire the worker's lock; None if a supervisor holds it. A supervisor holds the lock for
        its whole life. Only the holder may write the exit record."""
        folder = self.worker(key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (folder / state_files.LOCK).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def write_exit_record(self, key: WorkerKey, exit_record: ExitRecord) -> None:
        state_files.write_json(f"{self.worker(key)}/{state_files.EXIT}", exit_record._asdict())

    def close(self, key: WorkerKey) -> None:
        """Mark the worker's end as reported."""
        with suppress(FileNotFoundError):
            (self._live / key.flat_name).unlink()

    def ended_before(self, before_s: float) -> list[str]:
        """Jobs without a worker that started or ended since this time."""
        jobs = [each for each in self.jobs.iterdir() if JOB_ID.fullmatch(each.name)]
        return [each.name for each in jobs if _newest_s(each) < before_s]

    def forget(self, job_id: str) -> None:
        """Delete all files of a job, logs included, as far as possible."""
        delete_tree(Path(self._job(job_id)))


def _newest_s(job: Path) -> float:
    """When a worker of the job last started or ended."""
    times = [job.lstat().st_mtime]
    for each in job.glob("*/*/exit.json"):
        with suppress(FileNotFoundError):
            times.append(each.stat().st_mtime)
    return max(times)


def _sorted_keys(folders: Iterable[str]) -> list[WorkerKey]:
    """Ignores names that are not those of workers, such as `lost+found`."""
    found: list[WorkerKey] = []
    for folder in folders:
        with suppress(ValueError):
            found.append(WorkerKey.of_folder(folder))
    return sorted(found)
