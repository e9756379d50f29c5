"""The records in the files between the daemon and a supervisor.

`WorkerSpec` goes from the daemon to the supervisor, `ExitRecord` comes back. The field names are
the JSON keys. Supervisors of older versions keep running through an upgrade, so no field may be
renamed, and new fields need defaults.
"""

from __future__ import annotations

from typing import Any, NamedTuple

STOPPED_CODE = 143
"""Exit code of a worker that was stopped before it started: 128 + SIGTERM."""

KILLED_CODE = 137
"""Exit code of a worker that was killed before it started: 128 + SIGKILL."""

NEVER_STARTED = "stopped before it started"


class WorkerKey(NamedTuple):
    """Identifies one worker of one attempt. A worker starts at most once per key."""

    job_id: str
    attempt: int
    worker: int

    @property
    def folder(self) -> str:
        return f"{self.job_id}/{self.attempt}/{self.worker}"

    @property
    def log_name(self) -> str:
        return f"worker-{self.worker}.log"

    @property
    def flat_name(self) -> str:
        return f"{self.job_id}~{self.attempt}~{self.worker}"

    @classmethod
    def of_folder(cls, folder: str) -> WorkerKey:
        job_id, attempt, worker = folder.split("/")
        return cls(job_id, int(attempt), int(worker))

    @classmethod
    def of_flat_name(cls, name: str) -> WorkerKey:
        return cls.of_folder(name.replace("~", "/"))


class WorkerSpec(NamedTuple):
    """Everything that a supervisor needs to run one worker."""

    argv: list[str]
    env: dict[str, str]
    workdir: str
    marker: str
    """Value of ROTA_WORKER in the worker's environment. It identifies the worker's processes if the
    supervisor has died."""
    uid: int | None
    gid: int | None
    groups: list[int]
    cgroups: dict[str, str]
    """The worker's control groups: `kill`, `freezer`, `cpu`, `memory`, `pids` -> folder."""
    cleanup: list[str]
    """Command that removes a container that is no descendant of the supervisor. It runs with the
    worker's account after all processes have ended."""
    umask: int = 0o022
    grace_s: float = 30.0
    log_name: str = "worker-0.log"
    log_file_bytes: int = 64 * 1024**2
    log_files: int = 4
    cpus: float = 0.0
    memory_bytes: int = 0
    pids_max: int = 0
    inside: tuple[str, ...] | list[str] = ()
    """Prefix of a command line that runs a command in the worker's container."""

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> WorkerSpec:
        return cls(**value)


class ExitRecord(NamedTuple):
    """How a worker ended. `code` is the program's exit code, or 128 + signal."""

    code: int
    reason: str = ""
    """An explanation, where the exit code is not enough."""
    is_lost: bool = False
    """The supervisor died: the exit code is unknown, and the daemon killed the processes."""
    is_stopped: bool = False
    is_killed: bool = False
    """The worker or one of its descendants did not end in time after SIGTERM."""
    n_left_behind: int = 0
    n_dropped_bytes: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    is_retriable: bool = False
    """The worker never ran, for a reason outside the job."""

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> ExitRecord:
        return cls(**value)
