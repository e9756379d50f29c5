"""Every key of the configuration: its type, its default, and what it is for.

A key is a field of one of the classes below. `docs/reference/config.md` lists them, and a test
keeps it in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from rota.config.values import Reader, flag, seconds, size, text, texts, variables, whole

MIB = 2**20
VARIABLE_PREFIX = "ROTA_"


@dataclass(frozen=True, slots=True)
class Key:
    """`name` is what the file calls it, where that is not the name of the field."""

    read: Reader
    form: str
    words: str
    name: str = ""
    field: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        """The environment variable that sets it, if one can."""
        return "" if self.read is variables else f"{VARIABLE_PREFIX}{self.name.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """How the daemon runs. Read from the site's file, the state folder's, variables and flags."""

    listen: Annotated[str, Key(text, "HOST:PORT", "Answer on TCP, too, to those with a token.")] = (
        ""
    )
    policy: Annotated[str, Key(text, "POLICY", "Who gets what; see `rota policy list`.")] = (
        "elastic-fifo"
    )
    virtual_gpus: Annotated[
        str, Key(text, "NxMEMORY", "Pretend to have GPUs: `4x16GiB` are four of 16 GiB.")
    ] = ""
    admins: Annotated[
        tuple[str, ...], Key(texts, "USERS", "Who may touch everybody's jobs, besides root.")
    ] = ()
    round_interval_s: Annotated[
        float,
        Key(seconds, "TIME", "The least time between two decisions.", name="round_interval"),
    ] = 0.0
    min_runtime_s: Annotated[
        float,
        Key(seconds, "TIME", "A job that started is left alone so long.", name="min_runtime"),
    ] = 60.0
    restart_cost_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "What a stop and a start cost, until a job's own were measured.",
            name="restart_cost",
        ),
    ] = 30.0
    starvation_after_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "A job that waited so long gets a turn, where the policy leaves room for that.",
            name="starvation_after",
        ),
    ] = 3600.0
    backoff_s: Annotated[
        float,
        Key(seconds, "TIME", "The wait before a retry; it doubles each time.", name="backoff"),
    ] = 10.0
    grace_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long a program that listens is asked before SIGTERM, and any other has from"
            " SIGTERM to SIGKILL; for jobs that do not say.",
            name="grace",
        ),
    ] = 30.0
    heartbeat_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "A live worker that holds up the others is ended after so long without a word.",
            name="heartbeat",
        ),
    ] = 10.0
    replace_stragglers: Annotated[
        bool,
        Key(flag, "BOOL", "Replace a live worker that is slower than the others by another."),
    ] = False
    user_groups: Annotated[
        tuple[str, ...],
        Key(texts, "GROUPS", "On Kubernetes: who may come in, by the cluster's groups; else all."),
    ] = ()
    admin_groups: Annotated[
        tuple[str, ...],
        Key(texts, "GROUPS", "On Kubernetes: whose members may touch everybody's jobs."),
    ] = ()
    accounts: Annotated[
        tuple[str, ...],
        Key(
            texts,
            "NAME=UID:GID[:GROUP+GROUP]",
            "On Kubernetes: as whom people's jobs run. Else as the submitter on this machine; who"
            " is nobody here, as `*` says, or as the image does.",
        ),
    ] = ()
    move_to: Annotated[
        tuple[str, ...],
        Key(texts, "URLS", "Daemons that jobs may be moved to by themselves; else any."),
    ] = ()
    move_patience_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "A job that cannot be handed over for so long stays here.",
            name="move_patience",
        ),
    ] = 60.0
    log_file_bytes: Annotated[
        int, Key(size, "SIZE", "A worker's log begins a new file at this size.", name="log_size")
    ] = 64 * MIB
    log_files: Annotated[
        int, Key(whole(1, 1000), "N", "How many files of a worker's log are kept.")
    ] = 4
    keep_logs_s: Annotated[
        float,
        Key(seconds, "TIME", "How long the logs of a job that is over are kept.", name="keep_logs"),
    ] = 90 * 86400.0
    checkpoints: Annotated[
        str,
        Key(
            text,
            "PATH",
            "Where a job finds its folder for checkpoints; `{user}` and `{job}` stand for them. It"
            " is removed with the job's logs. Else in the state folder; on a cluster nowhere, or"
            " on a volume: `pvc:NAME/{user}/{job}`.",
        ),
    ] = ""
    engine: Annotated[
        str, Key(text, "ENGINE", "Where jobs run: `local`, on this machine, or `kubernetes`.")
    ] = "local"
    kubeconfig: Annotated[
        str, Key(text, "PATH", "Which cluster; else as for kubectl, or the one we run in.")
    ] = ""
    kube_context: Annotated[str, Key(text, "NAME", "Which context of the kubeconfig.")] = ""
    namespace: Annotated[
        str, Key(text, "NAME", "Where our pods and TrainingJobs are; else the context's.")
    ] = ""
    gpu_resource: Annotated[
        str, Key(text, "NAME", "What a cluster calls a GPU: `amd.com/gpu`, a MIG profile.")
    ] = "nvidia.com/gpu"
    pod_image: Annotated[str, Key(text, "IMAGE", "On a cluster, for jobs that name no image.")] = (
        "python:3.12-slim"
    )
    placeholder_image: Annotated[
        str,
        Key(text, "IMAGE", "Of the pods that hold shared GPUs: one with `sh`; else `pod_image`."),
    ] = ""
    pull_secrets: Annotated[
        tuple[str, ...], Key(texts, "NAMES", "With which a cluster's nodes pull images.")
    ] = ()
    service_account: Annotated[str, Key(text, "NAME", "As which pods run.")] = ""
    priority_class: Annotated[str, Key(text, "NAME", "Of pods.")] = ""
    tolerations: Annotated[
        tuple[str, ...],
        Key(texts, "KEY[=VALUE][:EFFECT]", "Taints of nodes on which jobs may run all the same."),
    ] = ()
    host_paths: Annotated[
        tuple[str, ...],
        Key(texts, "PATHS", "Folders of a cluster's nodes that jobs may mount, with all below."),
    ] = ()
    bind_patience_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long a cluster's scheduler may take over a pod that it cannot place.",
            name="bind_patience",
        ),
    ] = 20.0
    stuck_after_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long a pod may be unable to start: no such image, a volume that does not come.",
            name="stuck_after",
        ),
    ] = 120.0
    keep_ended_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long a cluster keeps the TrainingJob of a job that is over. Those that people made"
            " with kubectl stay until they delete them.",
            name="keep_ended",
        ),
    ] = 7 * 86400.0
    keep_ended_jobs: Annotated[
        int, Key(whole(0, 1_000_000), "N", "How many of them at most; the oldest go first.")
    ] = 5000
    advertise: Annotated[
        str,
        Key(text, "URL", "Where a cluster's workers reach the daemon; else where it listens."),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """What a site, or a project of it, adds to every job: `[defaults]`,
    `[projects.NAME.defaults]`."""

    image: Annotated[str, Key(text, "IMAGE", "For jobs that name no image.")] = ""
    env: Annotated[
        Mapping[str, str], Key(variables, "TABLE", "Variables; what a job sets itself wins.")
    ] = field(default_factory=dict[str, str])
    mounts: Annotated[
        tuple[str, ...],
        Key(texts, "SRC:DST[:rw]", "Into every container; `{user}` is the submitter."),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """What `rota submit` fills in where neither a flag nor the job file says it: `.rota.toml`."""

    project: Annotated[str, Key(text, "NAME", "Whom the job is for.")] = ""
    image: Annotated[str, Key(text, "IMAGE", "Run in a container.")] = ""
    env: Annotated[
        Mapping[str, str], Key(variables, "TABLE", "Variables; those of the job win.")
    ] = field(default_factory=dict[str, str])
    mounts: Annotated[tuple[str, ...], Key(texts, "SRC:DST[:rw]", "Into the container.")] = ()
    priority: Annotated[int, Key(whole(-1000, 1000), "N", "Higher goes first.")] = 0
    gpus: Annotated[str, Key(text, "N", "`2`, `1..4`, a share as `0.5`, or `0`.")] = ""
    gpu_types: Annotated[tuple[str, ...], Key(texts, "TYPES", "Only on these types.")] = ()
    time_limit: Annotated[str, Key(text, "TIME", "Stop it after `90m`, `2h`, `1d`.")] = ""
    retries: Annotated[int, Key(whole(0, 1000), "N", "Try again after a crash.")] = 0


@cache
def keys_of(kind: type) -> dict[str, Key]:
    """The keys of one of the classes above, by the name that a file gives them."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, Key] = {}
    for each in fields(kind):
        key: Key = get_args(hints[each.name])[1]
        default = getattr(kind(), each.name)
        name = key.name or each.name
        found[name] = Key(key.read, key.form, key.words, name, each.name, default)
    return found
