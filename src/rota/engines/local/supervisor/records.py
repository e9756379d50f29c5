"""What the daemon tells a keeper, and what a keeper leaves behind, as they stand in their files."""

from __future__ import annotations

from typing import Any, NamedTuple

STOPPED_CODE = 143
"""The exit code of a worker that was told to stop before it had started: 128 + SIGTERM."""

KILLED_CODE = 137
"""The same for one that was killed: 128 + SIGKILL."""

NEVER_STARTED = "stopped before it started"


class Fence(NamedTuple):
    """Names one worker for good. Nothing is ever started twice under one fence."""

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
    def of_folder(cls, folder: str) -> Fence:
        job_id, attempt, worker = folder.split("/")
        return cls(job_id, int(attempt), int(worker))

    @classmethod
    def of_flat_name(cls, name: str) -> Fence:
        return cls.of_folder(name.replace("~", "/"))


class Order(NamedTuple):
    """Everything that a keeper needs to know to run one worker."""

    argv: list[str]
    env: dict[str, str]
    workdir: str
    marker: str
    """The value of ROTA_WORKER in the worker's environment: by it, its processes are found when
    their keeper is gone."""
    uid: int | None
    gid: int | None
    groups: list[int]
    cgroups: dict[str, str]
    """The worker's control groups: `kill`, `freezer`, `cpu`, `memory`, `pids` -> folder."""
    cleanup: list[str]
    """A command that removes what is no descendant of the keeper (a container), run as the worker
    was, when everything else has ended."""
    umask: int = 0o022
    grace_s: float = 30.0
    log_name: str = "worker-0.log"
    log_file_bytes: int = 64 * 1024**2
    log_files: int = 4
    cpus: float = 0.0
    memory_bytes: int = 0
    pids_max: int = 0
    inside: tuple[str, ...] | list[str] = ()
    """The words that put a command into the worker's container."""

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Order:
        return cls(**value)


class Ending(NamedTuple):
    """How a worker ended. `code` is the program's own, or 128 + signal."""

    code: int
    reason: str = ""
    """In words, when the exit code does not say it all."""
    is_lost: bool = False
    """Its keeper died: the exit code is unknown, and what was left was ended by the daemon."""
    is_stopped: bool = False
    is_killed: bool = False
    """It, or something that it left behind, did not heed SIGTERM in time."""
    n_left_behind: int = 0
    n_dropped_bytes: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    is_retriable: bool = False
    """It never ran, through no fault of its own."""

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Ending:
        return cls(**value)
