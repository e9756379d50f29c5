"""The configuration keys of the daemon and of sites: type, default and description.

A key is a field of one of the classes below; `keys.py` has the keys of submits. A test checks that
`docs/reference/config.md` lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, get_args, get_type_hints

from rota.config.keys import Key
from rota.config.limits import UserLimits
from rota.config.parsers import flag, seconds, size, text, texts, variables, whole

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """Settings of the daemon: from the site file, the state directory, variables and flags."""

    listen: Annotated[
        str, Key(text, "HOST:PORT", "TCP address to listen on; clients need a token there.")
    ] = ""
    tls_cert: Annotated[
        str,
        Key(
            text,
            "FILE",
            "Certificate chain for `listen`, in PEM (default: a certificate made by the daemon).",
        ),
    ] = ""
    tls_key: Annotated[str, Key(text, "FILE", "Private key of `tls_cert`, in PEM.")] = ""
    plain_http: Annotated[
        bool,
        Key(
            flag,
            "true|false",
            "Serve `listen` without TLS: tokens are readable on the way, and clients cannot verify"
            " the daemon. Only for a TLS proxy or a network that you trust.",
        ),
    ] = False
    policy: Annotated[str, Key(text, "POLICY", "Scheduling policy; see `rota policy list`.")] = (
        "elastic-fifo"
    )
    virtual_gpus: Annotated[
        str, Key(text, "NxMEMORY", "Use virtual GPUs: `4x16GiB` means four GPUs of 16 GiB.")
    ] = ""
    gpus_from: Annotated[
        tuple[str, ...],
        Key(
            texts,
            "GPUS",
            "GPUs of this machine that the daemon uses, as numbers, ranges such as `2-3` or UUIDs"
            " (default: all). Two daemons on one machine need different ones.",
        ),
    ] = ()
    admins: Annotated[
        tuple[str, ...], Key(texts, "USERS", "Users who may change all jobs, besides root.")
    ] = ()
    max_priority: Annotated[
        int,
        Key(
            whole(0, 1000),
            "N",
            "Highest priority that users may give to jobs; a lower one is always allowed. It also"
            " limits TrainingJobs and pods, because only the cluster knows who created them.",
        ),
    ] = 0
    max_admin_priority: Annotated[
        int, Key(whole(0, 1000), "N", "Highest priority that administrators may give to jobs.")
    ] = 100
    round_interval_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "Minimum time between two scheduling rounds.",
            name="round_interval",
        ),
    ] = 0.0
    min_runtime_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "Time after its start in which a job yields only to jobs of higher priority.",
            name="min_runtime",
        ),
    ] = 60.0
    restart_cost_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "Assumed cost of a stop and a start, until the job's own cost is measured.",
            name="restart_cost",
        ),
    ] = 30.0
    starvation_after_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "Waiting time after which a job counts as starving, for policies that support it.",
            name="starvation_after",
        ),
    ] = 3600.0
    backoff_s: Annotated[
        float,
        Key(seconds, "TIME", "Delay before the first retry; doubles each time.", name="backoff"),
    ] = 10.0
    grace_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "Default grace period of a stop. A program that supports stop requests has this time"
            " before SIGTERM, any other program has it between SIGTERM and SIGKILL.",
            name="grace",
        ),
    ] = 30.0
    heartbeat_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "A live worker that blocks the others is killed after this time without a report.",
            name="heartbeat",
        ),
    ] = 10.0
    replace_stragglers: Annotated[
        bool,
        Key(flag, "BOOL", "Replace a live worker that is slower than the other workers."),
    ] = False
    user_groups: Annotated[
        tuple[str, ...],
        Key(texts, "GROUPS", "Kubernetes: groups whose members may use rota (default: all users)."),
    ] = ()
    admin_groups: Annotated[
        tuple[str, ...],
        Key(texts, "GROUPS", "Kubernetes: groups whose members may change all jobs."),
    ] = ()
    accounts: Annotated[
        tuple[str, ...],
        Key(
            texts,
            "NAME=UID:GID[:GROUP+GROUP]",
            "Kubernetes: uid and gid of each user's jobs (default: those of the submitter on this"
            " machine; for a user without an account here, the entry `*`, or the image's user).",
        ),
    ] = ()
    move_to: Annotated[
        tuple[str, ...],
        Key(texts, "URLS", "Daemons to which jobs may move automatically (default: any)."),
    ] = ()
    move_patience_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "A job whose move fails for this long stays here.",
            name="move_patience",
        ),
    ] = 60.0
    inherit_env: Annotated[
        tuple[str, ...],
        Key(
            texts,
            "NAMES",
            "Variables that a job without an image inherits from the submitter's shell; `*` stands"
            " for any end. Read from `/etc/rota/config.toml` where jobs are submitted"
            " (default: the [list](cli.md#environment)). Secrets are never inherited.",
        ),
    ] = ()
    log_file_bytes: Annotated[
        int, Key(size, "SIZE", "Size at which a worker's log file is rotated.", name="log_size")
    ] = 64 * MIB
    log_files: Annotated[int, Key(whole(1, 1000), "N", "Number of log files per worker.")] = 4
    keep_logs_s: Annotated[
        float,
        Key(seconds, "TIME", "How long to keep the logs of ended jobs.", name="keep_logs"),
    ] = 90 * 86400.0
    keep_workdir_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long to keep the folder in which a job with shipped code worked, after its end.",
            name="keep_workdir",
        ),
    ] = 7 * 86400.0
    keep_jobs_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long to keep ended jobs with their history and logs. Checkpoints stay.",
            name="keep_jobs",
        ),
    ] = 90 * 86400.0
    keep_events_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long to keep entries of the history; the newest one of a job stays with the job.",
            name="keep_events",
        ),
    ] = 90 * 86400.0
    allow_container_endpoint: Annotated[
        bool,
        Key(
            flag,
            "true|false",
            "Whether jobs with an image may choose the service that runs their container, with"
            " variables such as `DOCKER_HOST` or a context of their own.",
        ),
    ] = False
    checkpoints: Annotated[
        str,
        Key(
            text,
            "PATH",
            "Checkpoint directory of a job, with `{user}` and `{job}` as placeholders; it is"
            " deleted with the job's logs (default: in the state directory; on a cluster, none)."
            " On a cluster it can be on a volume: `pvc:NAME/{user}/{job}`.",
        ),
    ] = ""
    engine: Annotated[
        str, Key(text, "ENGINE", "Engine that runs jobs: `local` (this machine) or `kubernetes`.")
    ] = "local"
    kubeconfig: Annotated[
        str,
        Key(text, "PATH", "Kubeconfig file (default: as kubectl, or the cluster of this pod)."),
    ] = ""
    kube_context: Annotated[
        str, Key(text, "NAME", "Context in the kubeconfig (default: the current context).")
    ] = ""
    namespace: Annotated[
        str,
        Key(text, "NAME", "Namespace of pods and TrainingJobs (default: that of the context)."),
    ] = ""
    gpu_resource: Annotated[
        str, Key(text, "NAME", "Resource name of a GPU, such as `amd.com/gpu` or a MIG profile.")
    ] = "nvidia.com/gpu"
    pod_image: Annotated[
        str, Key(text, "IMAGE", "Image of jobs without an image, on a cluster.")
    ] = "python:3.12-slim"
    placeholder_image: Annotated[
        str,
        Key(
            text,
            "IMAGE",
            "Image of the pods that hold shared GPUs; it needs `sh` (default: `pod_image`).",
        ),
    ] = ""
    pull_secrets: Annotated[
        tuple[str, ...], Key(texts, "NAMES", "Image pull secrets of pods.")
    ] = ()
    service_account: Annotated[str, Key(text, "NAME", "Service account of pods.")] = ""
    priority_class: Annotated[str, Key(text, "NAME", "Priority class of pods.")] = ""
    tolerations: Annotated[
        tuple[str, ...],
        Key(texts, "KEY[=VALUE][:EFFECT]", "Node taints that jobs tolerate."),
    ] = ()
    host_paths: Annotated[
        tuple[str, ...],
        Key(texts, "PATHS", "Directories of nodes that jobs may mount, with subdirectories."),
    ] = ()
    bind_patience_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long a pod may stay unschedulable before it is given up.",
            name="bind_patience",
        ),
    ] = 20.0
    stuck_after_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long a pod may fail to start, for example for a missing image or volume.",
            name="stuck_after",
        ),
    ] = 120.0
    keep_ended_s: Annotated[
        float,
        Key(
            seconds,
            "TIME",
            "How long to keep TrainingJobs of ended jobs. Those that users created with kubectl"
            " stay until users delete them.",
            name="keep_ended",
        ),
    ] = 7 * 86400.0
    keep_ended_jobs: Annotated[
        int,
        Key(
            whole(0, 1_000_000),
            "N",
            "Maximum number of TrainingJobs of ended jobs; the oldest are deleted first.",
        ),
    ] = 5000
    advertise: Annotated[
        str,
        Key(text, "URL", "URL of the daemon for workers in a cluster (default: `listen`)."),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """Defaults for all jobs of a site (`[defaults]`) or a project (`[projects.NAME.defaults]`)."""

    image: Annotated[str, Key(text, "IMAGE", "Image of jobs without an image.")] = ""
    env: Annotated[
        Mapping[str, str],
        Key(variables, "TABLE", "Environment variables; those of the job take precedence."),
    ] = field(default_factory=dict[str, str])
    mounts: Annotated[
        tuple[str, ...],
        Key(texts, "SRC:DST[:rw]", "Mounts of every container; `{user}` is the submitter."),
    ] = ()


@cache
def keys_of(kind: type) -> dict[str, Key]:
    """Return the keys of one of the classes above, by their names in files."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, Key] = {}
    for each in fields(kind):
        key: Key = get_args(hints[each.name])[1]
        default = getattr(kind(), each.name)
        name = key.name or each.name
        found[name] = Key(key.read, key.form, key.description, name, each.name, default)
    return found


def daemon_keys() -> dict[str, Key]:
    """The keys of the daemon without those of jobs: its settings and the limits of one user."""
    return keys_of(DaemonSettings) | keys_of(UserLimits)
