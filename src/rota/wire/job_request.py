"""`JobRequest`, and the table of its fields: one row per field, everything about the field in it.

From a row come the flag of `rota submit`, the key of a job file, the key of `.rota.toml`, the
checks of requests, the field of a TrainingJob and the documentation. To add a field, add a row and
run `scripts/generate`, which writes the CRD and docs/reference/job-file.md.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any

PROGRAM = "Program"
RESOURCES = "Resources"
SCHEDULING = "Scheduling"
STOPS = "Stops and failures"
GROUPS = (PROGRAM, RESOURCES, SCHEDULING, STOPS)
"""Headings of the fields in the help and in the documentation."""
MAX_ITEMS = 1000
"""Limit of most lists."""
WHILE_QUEUED, ALSO_RUNNING = "queued", "queued or running"
"""When a field may be edited: while the job is queued or held, or until the job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    """What the table says about a field, besides its name, type and default."""

    group: str
    text: str
    """One sentence, with the default in brackets if the value None or "" has a meaning."""
    example: str
    """A value as in a job file."""
    flags: tuple[str, ...] = ()
    """The names of its flag; without a flag, none."""
    metavar: str = ""
    flag_text: str = ""
    """The help of the flag, if it differs from `text`."""
    is_setting: bool = False
    """Whether it is a key of `.rota.toml`."""
    editable: str = ""
    """When an edit may change it: `WHILE_QUEUED`, `ALSO_RUNNING`, or never if empty."""
    is_in_training_job: bool = True
    """Whether a TrainingJob may have it."""
    is_amount: bool = False
    """Text that may also be written as a number."""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    """Bounds of a number, or of each number in a list."""
    min_items: int | None = None
    max_items: int | None = None
    since: str = "0.1"
    """The version of rota that introduced it."""


@dataclass(frozen=True, slots=True)
class JobField:
    """A row of the table. `type` is the annotation without `| None`, such as `list[str]`."""

    name: str
    type: str
    default: Any
    is_required: bool
    info: FieldInfo


def _row(**values: Any) -> dict[str, FieldInfo]:
    return {"info": FieldInfo(**values)}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request for a job: the content of a job file, or the flags of `rota submit`.

    Amounts are text: `gpus` "2", "1..4", "1..4@2" or "0.5"; memory "6GiB"; times "90", "90s",
    "15m", "2h", "1d". Empty or None: the site's default, or none.
    """

    command: list[str] = field(
        metadata=_row(
            group=PROGRAM,
            text="Command to run: the program, then its arguments.",
            example="[python, train.py]",
            min_items=1,
            max_items=4096,
        )
    )
    name: str = field(
        default="",
        metadata=_row(
            group=PROGRAM,
            text="Job name (default: the script's name).",
            example="bert",
            flags=("--name", "-n"),
            metavar="NAME",
            editable=ALSO_RUNNING,
        ),
    )
    project: str = field(
        default="",
        metadata=_row(
            group=SCHEDULING,
            text="Project that the job is charged to.",
            example="vision",
            flags=("--project",),
            metavar="NAME",
            is_setting=True,
        ),
    )
    gpus: str = field(
        default="",
        metadata=_row(
            group=RESOURCES,
            text="GPUs: 2, 1..4 (a range), 1..4@2 (starts with 2), 0.5 (a share), 0 (default: 1).",
            example="1..4",
            flags=("--gpus", "-g"),
            metavar="N",
            is_setting=True,
            is_amount=True,
        ),
    )
    gpus_per_worker: int = field(
        default=0,
        metadata=_row(
            group=RESOURCES,
            text="GPUs of each process, for 'processes: per-gpu' (default: 1).",
            example="2",
            flags=("--gpus-per-worker",),
            metavar="N",
            flag_text="Start one process for every N GPUs, with --processes per-gpu (default: 1).",
            minimum=0,
            maximum=1024,
        ),
    )
    processes: str = field(
        default="",
        metadata=_row(
            group=RESOURCES,
            text="Processes of the job: per-node (one on each node, with all GPUs there) or per-gpu"
            " (default: per-gpu with --gpus-per-worker and in the modes live and torchrun).",
            example="per-node",
            flags=("--processes",),
            metavar="HOW",
            choices=("per-node", "per-gpu"),
        ),
    )
    nodes: int = field(
        default=0,
        metadata=_row(
            group=RESOURCES,
            text="The most nodes that the job may use (default: 1 for per-node, unless the command"
            " is torchrun or accelerate launch; otherwise any number).",
            example="2",
            flags=("--nodes",),
            metavar="N",
            minimum=0,
            maximum=100_000,
        ),
    )
    gpu_memory: str = field(
        default="",
        metadata=_row(
            group=RESOURCES,
            text="GPU memory to reserve on each GPU, which other jobs may share, as 6GiB.",
            example="6GiB",
            flags=("--gpu-memory",),
            metavar="SIZE",
            is_amount=True,
        ),
    )
    gpu_types: list[str] = field(
        default_factory=list[str],
        metadata=_row(
            group=RESOURCES,
            text="Run only on GPUs of one of these types.",
            example="[A100, H100]",
            flags=("--gpu-type",),
            metavar="TYPE",
            flag_text="Run only on GPUs of this type.",
            is_setting=True,
            editable=WHILE_QUEUED,
            max_items=MAX_ITEMS,
        ),
    )
    node_labels: dict[str, str] = field(
        default_factory=dict[str, str],
        metadata=_row(
            group=RESOURCES,
            text="Run only on nodes with these labels.",
            example="{disk: ssd}",
            max_items=MAX_ITEMS,
        ),
    )
    cpus: float = field(
        default=0.0,
        metadata=_row(
            group=RESOURCES,
            text="CPUs of each process (default: no limit).",
            example="8",
            flags=("--cpus",),
            metavar="N",
            editable=WHILE_QUEUED,
            minimum=0,
        ),
    )
    memory: str = field(
        default="",
        metadata=_row(
            group=RESOURCES,
            text="Host memory of each process, as 32GiB (default: no limit).",
            example="32GiB",
            flags=("--memory",),
            metavar="SIZE",
            editable=WHILE_QUEUED,
            is_amount=True,
        ),
    )
    priority: int = field(
        default=0,
        metadata=_row(
            group=SCHEDULING,
            text="Jobs with a higher priority start first; the daemon limits it (default: 0).",
            example="10",
            flags=("--priority", "-p"),
            metavar="N",
            is_setting=True,
            editable=ALSO_RUNNING,
            minimum=-1000,
            maximum=1000,
        ),
    )
    mode: str = field(
        default="fixed",
        metadata=_row(
            group=SCHEDULING,
            text="How the size changes: fixed (never), restart, torchrun or live (default: fixed).",
            example="restart",
            flags=("--mode",),
            metavar="MODE",
            choices=("fixed", "restart", "torchrun", "live"),
        ),
    )
    epochs: float | None = field(
        default=None,
        metadata=_row(
            group=SCHEDULING,
            text="Number of epochs that the job trains.",
            example="90",
            flags=("--epochs",),
            metavar="N",
        ),
    )
    hours: float | None = field(
        default=None,
        metadata=_row(
            group=SCHEDULING,
            text="Estimated run time in hours, at the requested size.",
            example="2.5",
            flags=("--hours",),
            metavar="N",
        ),
    )
    category: str = field(
        default="",
        metadata=_row(
            group=SCHEDULING,
            text="Jobs of one category share speed measurements (default: the job's name).",
            example="bert-large",
        ),
    )
    env: dict[str, str] = field(
        default_factory=dict[str, str],
        metadata=_row(
            group=PROGRAM,
            text="Environment variables.",
            example="{BATCH: 32}",
            flags=("--env", "-e"),
            metavar="NAME[=VALUE]",
            flag_text="Set an environment variable; without =VALUE, pass on your own value.",
            is_setting=True,
        ),
    )
    workdir: str = field(
        default="",
        metadata=_row(
            group=PROGRAM,
            text="Working folder (default: the folder of the submit, or that of the image).",
            example="/data/bert",
            flags=("--workdir", "-w"),
            metavar="DIR",
        ),
    )
    umask: int | None = field(
        default=None,
        metadata=_row(
            group=PROGRAM,
            text="Umask as a decimal number, as 18 for 0o022 (default: that of the submit).",
            example="18",
            minimum=0,
            maximum=0o777,
        ),
    )
    image: str = field(
        default="",
        metadata=_row(
            group=PROGRAM,
            text="Container image of the job (default: the site's image, or no container).",
            example="pytorch/pytorch:2.4",
            flags=("--image",),
            metavar="IMAGE",
            is_setting=True,
        ),
    )
    mounts: list[str] = field(
        default_factory=list[str],
        metadata=_row(
            group=PROGRAM,
            text="Mounts of the container, as SRC:DST[:rw]; on a cluster, SRC may be"
            " pvc:NAME/FOLDER or nfs:SERVER:/FOLDER.",
            example="['/data:/data', '/scratch:/scratch:rw']",
            flags=("--mount",),
            metavar="SRC:DST[:rw]",
            flag_text="Mount a folder into the container.",
            is_setting=True,
            max_items=64,
        ),
    )
    ports: list[str] = field(
        default_factory=list[str],
        metadata=_row(
            group=PROGRAM,
            text="Ports that 'rota port-forward' forwards to the job, as HOST:JOB.",
            example="['6006:6006']",
            flags=("--port",),
            metavar="HOST:JOB",
            flag_text="Forward a port to the job.",
            max_items=MAX_ITEMS,
        ),
    )
    host_network: bool = field(
        default=False,
        metadata=_row(
            group=PROGRAM,
            text="Give the container the host's network (default: a network of its own).",
            example="true",
            flags=("--host-network",),
            is_in_training_job=False,
        ),
    )
    snapshot: str = field(
        default="",
        metadata=_row(
            group=PROGRAM,
            text="Id of the shipped folder that the job runs in; 'rota submit --ship' sets it.",
            example="a 64-digit hash",
        ),
    )
    time_limit: str = field(
        default="",
        metadata=_row(
            group=STOPS,
            text="Stop the job after this time, as 90m, 2h or 1d (default: no limit).",
            example="2h",
            flags=("--time-limit",),
            metavar="TIME",
            is_setting=True,
            editable=ALSO_RUNNING,
            is_amount=True,
        ),
    )
    retries: int = field(
        default=0,
        metadata=_row(
            group=STOPS,
            text="Number of retries after a failure, except a time limit (default: 0).",
            example="3",
            flags=("--retries",),
            metavar="N",
            is_setting=True,
            editable=ALSO_RUNNING,
            minimum=0,
            maximum=1000,
        ),
    )
    retry_on: list[int] = field(
        default_factory=list[int],
        metadata=_row(
            group=STOPS,
            text="Retry only after these exit codes (default: after every failure).",
            example="[75]",
            flags=("--retry-on",),
            metavar="CODE",
            flag_text="Retry only after this exit code (default: after every failure).",
            editable=ALSO_RUNNING,
            minimum=1,
            maximum=255,
            max_items=MAX_ITEMS,
        ),
    )
    grace: str = field(
        default="",
        metadata=_row(
            group=STOPS,
            text="Time between a stop request and the kill (default: 30s).",
            example="2m",
            flags=("--grace",),
            metavar="TIME",
            is_amount=True,
        ),
    )
    after: list[str] = field(
        default_factory=list[str],
        metadata=_row(
            group=SCHEDULING,
            text="Jobs, or arrays, that must succeed before this job starts.",
            example="[prepare]",
            flags=("--after",),
            metavar="JOB",
            flag_text="Start after this job, or all jobs of this array, have succeeded.",
            max_items=MAX_ITEMS,
        ),
    )
    after_any: list[str] = field(
        default_factory=list[str],
        metadata=_row(
            group=SCHEDULING,
            text="Jobs, or arrays, that must end before this job starts.",
            example="[prepare]",
            flags=("--after-any",),
            metavar="JOB",
            flag_text="Start after this job, or all jobs of this array, have ended.",
            max_items=MAX_ITEMS,
        ),
    )
    after_failed: list[str] = field(
        default_factory=list[str],
        metadata=_row(
            group=SCHEDULING,
            text="Jobs, or arrays, that must end before this job starts, at least one with a"
            " failure; else this job is cancelled.",
            example="[train]",
            flags=("--after-failed",),
            metavar="JOB",
            flag_text="Start after this job, or a job of this array, has failed.",
            max_items=MAX_ITEMS,
        ),
    )
    array: str = field(
        default="",
        metadata=_row(
            group=SCHEDULING,
            text="One job for each index: 10, 0-9 or 1,5,9; 0-99%8 runs at most 8 of them at once.",
            example="0-9",
            flags=("--array",),
            metavar="INDICES",
            is_in_training_job=False,
        ),
    )
    hold: bool = field(
        default=False,
        metadata=_row(
            group=SCHEDULING,
            text="Hold the job until 'rota release'.",
            example="true",
            flags=("--hold",),
            editable=ALSO_RUNNING,
        ),
    )


@cache
def job_fields() -> dict[str, JobField]:
    """The table, by field name."""
    return {
        each.name: JobField(
            each.name,
            str(each.type).removesuffix(" | None"),
            _default(each),
            each.default is MISSING and each.default_factory is MISSING,
            each.metadata["info"],
        )
        for each in fields(JobRequest)
    }


@cache
def edit_fields() -> dict[str, JobField]:
    """The fields of an edit, by name. `hold` is none of them: it has commands of its own."""
    fields = job_fields().items()
    return {name: each for name, each in fields if each.info.editable and name != "hold"}


def _default(each: Any) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return None if each.default is MISSING else each.default
