"""A client without a daemon that returns fixed values."""

# ruff: noqa: ARG002 - whatever is asked, the answer is the same
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rota.client.endpoint import Endpoint
from rota.wire.daemon import GpuView, NodeView, SettingView, Status, TokenView
from rota.wire.history import HistoryJob, HistoryPage
from rota.wire.job_changes import ChangedJobs, JobEdit, JobSelection
from rota.wire.jobs import (
    AttemptView,
    JobDetails,
    JobList,
    JobRequest,
    JobView,
    LogPiece,
    LogRange,
    StoryEntry,
    WorkerView,
)
from rota.wire.submit_plan import JobPlan, PlannedChange, PlannedSlot, SubmitPlan
from rota.wire.training import JobProfile, WorkerFigure
from tests.golden.profiles import PROFILE

NOW = 1_790_000_000.0
GIB = 2**30
SECRET = "hf_abcdefghijklmnopqrstuvwxyz"

RUNNING = JobView(
    id="1q1ghcmf",
    name="bert",
    user="user-1",
    project="vision",
    state="running",
    reason="",
    priority=5,
    gpus="1..4",
    gpus_held=2,
    nodes=["box"],
    attempt=2,
    submitted_s=NOW - 7384,
    started_s=NOW - 7000,
    ended_s=None,
    running_s=3725.5,
    epochs=10,
    epochs_done=4.5,
    progress=0.45,
    remaining_s=3000.0,
    finish_s=NOW + 3000,
    finish_error=0.12,
)
RAN = HistoryJob(
    id="1q1ghcmf",
    name="bert",
    user="user-1",
    project="vision",
    state="succeeded",
    submitted_s=NOW - 7384,
    gpus="1..4@2",
    duration_s=3725.5,
    gpus_per_worker=1,
    processes="per-gpu",
    nodes=0,
    gpu_types=["A100", "V100"],
    node_labels={"disk": "ssd"},
    cpus=0.0,
    memory_bytes=2 * GIB,
    priority=5,
    mode="restart",
    category="c1",
    epochs=10,
    speedups=[1.0, 1.8, 2.5, 3.1],
    estimate_s=None,
    min_runtime_s=30.0,
)
QUEUED = JobView(
    id="1q1gtmja",
    name="größe-漢字",
    user="user-2",
    project="",
    state="queued",
    reason="it waits for 8 GPUs of type A100: 2 are free, and 6 more by 14:05 when bert ends",
    priority=0,
    gpus="8",
    gpus_held=0,
    nodes=[],
    attempt=0,
    submitted_s=NOW - 42,
    started_s=None,
    ended_s=None,
    running_s=0.0,
    epochs=1,
    epochs_done=0,
    remaining_s=40_000.0,
    finish_s=NOW + 40_000,
    finish_error=0.3,
)
FAILED = JobView(
    id="1q1gxzs9",
    name="broken",
    user="user-1",
    project="",
    state="failed",
    reason="exit code 3",
    priority=0,
    gpus="0.5",
    gpus_held=0,
    nodes=[],
    attempt=1,
    submitted_s=NOW - 200_000,
    started_s=NOW - 199_990,
    ended_s=NOW - 199_000,
    running_s=990.0,
    epochs=1,
    epochs_done=0,
)
REQUEST = JobRequest(
    command=["python", "train.py", "--lr", "1e-3", "--name=a b", "--api-key", "k123456"],
    name="bert",
    project="vision",
    gpus="1..4",
    cpus=2.0,
    memory="32GiB",
    priority=5,
    epochs=10,
    env={"HF_TOKEN": SECRET, "THREADS": "4", "DB": "postgres://user-1:hunter22@db/x"},
    workdir="/home/user-1/bert",
    umask=0o027,
    time_limit="2d",
)
ATTEMPTS = [
    AttemptView(
        1,
        NOW - 7000,
        NOW - 6000,
        "preempted",
        "a job of higher priority needed its GPUs",
        [
            WorkerView(0, "box", [0], started_s=NOW - 7000, exit_code=143, ended_s=NOW - 6000),
            WorkerView(1, "box", [1], started_s=NOW - 6500, exit_code=0, ended_s=NOW - 6001),
        ],
    ),
    AttemptView(2, NOW - 2725, None, "", "", [WorkerView(0, "box", [0, 1], started_s=NOW - 2725)]),
]
DETAILS = JobDetails(
    job=RUNNING,
    request=REQUEST,
    attempts=ATTEMPTS,
    failures=0,
    gpu_s=7451.0,
    queued_s=384.0,
    after=["1q1gaaaa"],
    epochs_saved=4.0,
    lost_s=754.0,
    metrics={"loss": 0.0667, "accuracy": 0.87},
    stragglers=[WorkerFigure(1, "box", 0.081, slowness=1.5)],
    hint="worker 1 holds the others up: look at its GPU, its node and its data",
)
OUT_OF_MEMORY = "exit code 1: the GPU ran out of memory (OOM)"
BROKEN = JobDetails(
    job=replace(FAILED, reason=OUT_OF_MEMORY),
    request=JobRequest(command=["python", "train.py"], name="broken", gpus="0.5"),
    attempts=[
        AttemptView(
            1,
            NOW - 199_990,
            NOW - 199_000,
            "failed",
            OUT_OF_MEMORY,
            [
                WorkerView(
                    0,
                    "box",
                    [3],
                    share_bytes=8 * GIB,
                    started_s=NOW - 199_990,
                    exit_code=1,
                    ended_s=NOW - 199_000,
                )
            ],
        )
    ],
    failures=0,
    gpu_s=495.0,
    queued_s=10.0,
    after=[],
    hint="a smaller batch, or more memory: `--gpu-memory`, `--gpu-type`",
)
STORY = [
    StoryEntry(1, NOW - 7384, "1q1ghcmf", 0, "", "queued", "JobSubmitted", "", "user-1"),
    StoryEntry(2, NOW - 7000, "1q1ghcmf", 1, "queued", "starting", "Plan", "", ""),
    StoryEntry(3, NOW - 6999, "1q1ghcmf", 1, "starting", "running", "WorkersStarted", "", ""),
    StoryEntry(
        4,
        NOW - 6000,
        "1q1ghcmf",
        1,
        "running",
        "queued",
        "WorkersExited",
        "preempted by a job of higher priority",
        "",
    ),
]
NODES = [
    NodeView(
        "box",
        is_draining=False,
        cpus=64,
        memory_bytes=256 * GIB,
        cpus_used=2,
        memory_used_bytes=32 * GIB,
        gpus=[
            GpuView(0, "A100", 80 * GIB, 60 * GIB, 0.97, jobs=["1q1ghcmf"]),
            GpuView(1, "A100", 80 * GIB, 61 * GIB, 0.5, jobs=["1q1ghcmf"]),
            GpuView(2, "A100", 80 * GIB),
            GpuView(3, "A100", 80 * GIB, problem="2 uncorrectable memory errors"),
        ],
    ),
    NodeView(
        "old-box",
        is_draining=True,
        cpus=8,
        memory_bytes=16 * GIB,
        cpus_used=0,
        memory_used_bytes=0,
        gpus=[],
    ),
]
STATUS = Status(
    pid=4242,
    version="0.1.0",
    engine="local",
    address="127.0.0.1:8800",
    socket="/var/lib/rota/rota.sock",
    started_s=NOW - 90_000,
    policy="tiresias:knob=4",
    nodes=2,
    gpus=3,
    gpus_held=2,
    jobs={"running": 1, "queued": 1},
)
TOKENS = [
    TokenView("0a1b2c3d", "user-1", "user", NOW - 86_400, NOW + 86_400),
    TokenView("11223344", "user-1", "read_only", NOW - 86_400, NOW - 60),
    TokenView("55667788", "user-2", "user", NOW - 86_400, revoked_s=NOW - 5),
]

PLAN = SubmitPlan(
    103,
    [
        JobPlan(
            replace(QUEUED, id="", name="sweep", user="user-1", gpus="2"),
            count=100,
            starts_now=False,
            gpus=0,
            slots=[],
            reason="waits for 2 GPUs: 1 running, 1 ahead in the queue",
            start_s=NOW + 3000,
            finish_s=NOW + 6000,
            finish_error=0.12,
            ahead_count=1,
            ahead=[QUEUED],
        ),
        JobPlan(
            replace(QUEUED, id="", name="urgent", user="user-1", gpus="4", reason=""),
            count=1,
            starts_now=True,
            gpus=4,
            slots=[PlannedSlot("box", [0, 1, 2, 3])],
            reason="",
            start_s=NOW,
            finish_s=None,
            finish_error=None,
            ahead_count=0,
            changes=[
                PlannedChange("1q1ghcmf", "bert", "user-1", "shrunk", 2, 1),
                PlannedChange("1q1gtmja", "größe-漢字", "user-2", "preempted", 3, 0),
            ],
        ),
    ],
)


class FakeClient:
    """Takes every call of `rota.client.Client` that a command makes."""

    endpoint = Endpoint(socket="/run/rota.sock")

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def me(self) -> str:
        return "user-1"

    def jobs(self, *, user: str = "", states: Any = (), **_: object) -> JobList:
        found = [QUEUED, RUNNING, FAILED]
        return JobList(
            [
                job
                for job in found
                if user in ("", job.user) and (not list(states) or job.state in states)
            ]
        )

    def show(self, job: str) -> JobDetails:
        return BROKEN if job == "broken" else DETAILS

    def story(self, job: str) -> list[StoryEntry]:
        return STORY

    def profile(self, job: str) -> JobProfile:
        return PROFILE

    def change_jobs(self, action: str, selection: JobSelection) -> ChangedJobs:
        return ChangedJobs([RUNNING])

    def named(self, word: str) -> list[JobView]:
        return [RUNNING]

    def resize(self, job: str, gpus: int | None) -> JobView:
        reason = f"pinned to {gpus} GPUs by its owner" if gpus else ""
        return replace(RUNNING, reason=reason)

    def edit(self, job: str, edit: JobEdit) -> list[JobView]:
        return [replace(RUNNING, name=edit.name or job, priority=edit.priority or 0)]

    def wait(self, job: str) -> JobView:
        return replace(RUNNING, state="succeeded", ended_s=NOW)

    def resubmit_all(self, job: str) -> list[str]:
        return ["1q1h0000"]

    def submit_many(self, jobs: list[JobRequest]) -> list[str]:
        return [f"1q1h000{number}" for number, _ in enumerate(jobs)]

    def plan(self, jobs: list[JobRequest]) -> SubmitPlan:
        return PLAN

    def log_bytes(self, job: str, wanted: LogRange) -> Iterator[bytes]:
        return iter(
            [
                b"epoch 1\n",
                f"logged in with {SECRET}\n".encode(),
                b"tokens: 12345\n",
                b"used k123456\n",
            ]
        )

    def log_pieces(self, job: str, wanted: LogRange) -> Iterator[LogPiece]:
        return iter([LogPiece(NOW, 1, 0, "epoch 1\nepo"), LogPiece(NOW + 1, 1, 0, "ch 2\nend")])

    def status(self) -> Status:
        return STATUS

    def history(self, *, since_s: float = 0.0, before: int | None = None) -> HistoryPage:
        return HistoryPage([RAN], n_left_out=2)

    def settings(self) -> list[SettingView]:
        return [
            SettingView("home", "/var/lib/rota", "default"),
            SettingView("policy", "elastic-fifo", "default"),
            SettingView("admins", ["user-1", "user-2"], "/etc/rota/config.toml"),
            SettingView("min_runtime", 43200.0, "ROTA_MIN_RUNTIME"),
        ]

    def nodes(self) -> list[NodeView]:
        return NODES

    def drain(self, node: str) -> list[NodeView]:
        return NODES

    resume = lose = drain

    def policy(self) -> str:
        return STATUS.policy

    def set_policy(self, policy: str) -> str:
        return policy

    def tokens(self) -> list[TokenView]:
        return TOKENS

    def create_token(self, *, user: str, scope: str, days: float | None) -> TokenView:
        return TokenView("99aabbcc", user or "user-1", scope, NOW, None, None, "rota_secret")

    def revoke_token(self, token_id: str) -> TokenView:
        return TOKENS[2]
