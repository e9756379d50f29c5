"""Converts records to table rows and back. Columns have the order of `sql/queries.sql`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from rota.core.estimation.speed_model import SpeedModel
from rota.core.lifecycle.states import JobState
from rota.core.model.allocation import Slot
from rota.core.model.effects import Transition
from rota.core.model.job import Ended, Job
from rota.core.model.node import Node
from rota.store.codec import CodecError, decode, encode
from rota.store.records import (
    Attempt,
    AuditEntry,
    Exit,
    ProfileRecord,
    Project,
    SampleRecord,
    Submission,
    Token,
    TokenScope,
    UsageRecord,
    User,
    Worker,
)
from rota.store.sqlite.writer import Value

_to_text = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

SqlRow = Sequence[Any]
"""A row as SQLite returns it. Strict tables guarantee the types of the columns."""


def job_row(job: Job) -> tuple[Value, ...]:
    spec, phase = job.spec, job.phase
    ended_s = phase.at_s if isinstance(phase, Ended) else None
    columns = (spec.name, spec.user, spec.project, job.state.value, job.attempt, ended_s)
    return job.id, *columns, encode(job)


def read_job(job_id: str, body: str) -> Job:
    try:
        return decode(Job, body)
    except CodecError as error:
        raise CodecError(f"job {job_id}: {error}") from error


def node_row(node: Node) -> tuple[Value, ...]:
    return node.id, encode(node)


def submission_row(each: Submission) -> tuple[Value, ...]:
    common = hash_of(each.common) if each.common else None
    return each.job_id, each.user, each.uid, each.program, each.key, common


@lru_cache(maxsize=64)
def hash_of(common: str) -> str:
    """The key of a common part. The jobs of an array are packed one after the other."""
    return hashlib.sha256(common.encode()).hexdigest()


def attempt_row(each: Attempt) -> tuple[Value, ...]:
    outcome = each.outcome and each.outcome.value
    return each.job_id, each.number, each.started_s, each.ended_s, outcome, _utf8(each.reason)


def read_attempt(row: SqlRow, workers: tuple[Worker, ...]) -> Attempt:
    job_id, number, started_s, ended_s, outcome, reason = row
    state = None if outcome is None else JobState(outcome)
    return Attempt(job_id, number, started_s, ended_s, state, reason, workers)


def end_row(end: Transition) -> tuple[Value, ...]:
    return end.at_s, end.after.value, _utf8(end.reason), end.job_id, end.attempt


def worker_row(each: Worker) -> tuple[Value, ...]:
    slot = each.slot
    place = (slot.node, json.dumps(slot.gpus), slot.share_bytes, slot.fraction)
    return each.job_id, each.attempt, each.number, each.generation, *place, each.ordered_s


def read_worker(row: SqlRow) -> Worker:
    job_id, attempt, number, generation, node, gpus, share_bytes, fraction, *times = row
    slot = Slot(node, tuple(json.loads(gpus)), share_bytes, fraction)
    return Worker(job_id, attempt, number, generation, slot, *times)


def exit_row(each: Exit) -> tuple[Value, ...]:
    return each.code, each.at_s, each.job_id, each.attempt, each.worker


def event_row(each: Transition, actor: str) -> tuple[Value, ...]:
    before = each.before and each.before.value
    states = (before, each.after.value)
    return each.at_s, each.job_id, each.attempt, *states, each.cause, _utf8(each.reason), actor


def _utf8(text: str) -> str:
    """A text for a column. File names in a reason may contain bytes that are not UTF-8, which
    Python keeps as lone surrogates and SQLite refuses."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def read_entry(row: SqlRow) -> AuditEntry:
    number, at_s, job_id, attempt, before, after, cause, reason, actor = row
    old = None if before is None else JobState(before)
    transition = Transition(at_s, job_id, attempt, old, JobState(after), cause, reason)
    return AuditEntry(number, transition, actor)


def sample_row(each: SampleRecord) -> tuple[Value, ...]:
    seen = (each.memory_bytes, each.gpu_memory_bytes, _to_text(dict(each.metrics)))
    pace = (each.epochs_done, each.step_s, each.samples_per_s)
    return each.job_id, each.attempt, each.at_s, each.worker, each.workers, *pace, *seen


def read_sample(row: SqlRow) -> SampleRecord:
    *plain, metrics = row
    return SampleRecord(*plain, metrics=_read_metrics(metrics))


def _read_metrics(text: str) -> dict[str, float]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CodecError(f"metrics are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise CodecError("metrics are not a JSON object")
    named = cast("dict[str, object]", found)
    if not all(isinstance(value, int | float) for value in named.values()):
        raise CodecError("metrics are not numbers")
    return cast("dict[str, float]", found)


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows are replaced as a whole: the names of its queries, and its conversions."""

    put: str
    all: str
    pack: Callable[[Any], tuple[Value, ...]]
    unpack: Callable[[SqlRow], Any]


def _token_row(each: Token) -> tuple[Value, ...]:
    ends = (each.job_id, each.expires_s, each.revoked_s)
    return each.id, each.sha256, each.user, each.scope.value, each.created_s, *ends


def _read_token(row: SqlRow) -> Token:
    token_id, sha256, user, scope, created_s, *ends = row
    return Token(token_id, sha256, user, TokenScope(scope), created_s, *ends)


TABLES: Mapping[type, Table] = {
    Node: Table(
        put="put_node",
        all="nodes",
        pack=node_row,
        unpack=lambda row: decode(Node, row[1]),
    ),
    Project: Table(
        put="put_project",
        all="projects",
        pack=lambda each: (each.name, each.parent, each.settings),
        unpack=lambda row: Project(*row),
    ),
    User: Table(
        put="put_user",
        all="users",
        pack=lambda each: (each.name, each.uid, each.project, each.is_admin),
        unpack=lambda row: User(*row[:3], is_admin=bool(row[3])),
    ),
    Token: Table(put="put_token", all="tokens", pack=_token_row, unpack=_read_token),
    UsageRecord: Table(
        put="put_usage",
        all="usage",
        pack=lambda each: (
            each.project,
            each.user,
            each.gpu_s,
            each.decayed_gpu_s,
            each.as_of_s,
        ),
        unpack=lambda row: UsageRecord(*row),
    ),
    ProfileRecord: Table(
        put="put_profile",
        all="profiles",
        pack=lambda each: (each.category, encode(each.speed), each.updated_s),
        unpack=lambda row: ProfileRecord(row[0], decode(SpeedModel, row[1]), row[2]),
    ),
}
