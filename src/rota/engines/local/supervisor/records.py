"""The records in the files between the daemon and a supervisor.

`WorkerSpec` goes from the daemon to the supervisor, `ExitRecord` comes back. The field names are
the JSON keys. Supervisors of other versions keep running through an upgrade and a downgrade, so no
field may be renamed, new fields need defaults, and readers ignore fields that they do not know.
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
        """Raises `ValueError` if this is not the folder of a worker."""
        job_id, attempt, worker = folder.split("/")
        return cls(job_id, int(attempt), int(worker))


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
    cleanup_s: float = 60.0
    """The cleanup command is killed after this time."""

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> WorkerSpec | None:
        """None if a field is missing or has another type."""
        known = _known_fields(_ANY_SPEC, value)
        return None if known is None else cls(**known)


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
    boot_id: str = ""
    ended_boot_s: float = 0.0
    """The end as time since this boot, which no change of the wall clock reaches."""
    remains: str = ""
    """What the clean-up left behind, for an administrator."""

    @classmethod
    def of_json(cls, value: dict[str, Any] | None) -> ExitRecord:
        """A record that cannot be understood is an exit with an unknown code: the file exists, so
        the worker has ended."""
        known = None if value is None else _known_fields(_ANY_EXIT, value)
        return UNREADABLE_EXIT if known is None else cls(**known)


UNREADABLE_EXIT = ExitRecord(-1, "its exit record is unreadable", is_lost=True)
_ANY_EXIT = ExitRecord(code=0)
_ANY_SPEC = WorkerSpec([], {}, "", "", None, None, [], {}, [])


def _known_fields(example: NamedTuple, value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of `value` that the record of the example has. None if a field without a
    default is missing, or if a field has another type than in the example."""
    known = {name: value[name] for name in example._fields if name in value}
    required = set(example._fields) - set(example._field_defaults)
    like = example._asdict()
    if required <= set(known) and all(_is_like(known[name], like[name]) for name in known):
        return known
    return None


def _is_like(value: object, example: object) -> bool:
    """`None` stands for an optional number. JSON has no tuples, and may write 1 for 1.0."""
    match example:
        case None:
            return value is None or type(value) is int
        case float():
            return type(value) in (int, float)
        case tuple():
            return type(value) is list
        case _:
            return type(value) is type(example)
