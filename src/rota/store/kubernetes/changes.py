"""What of a batch has to be at the API server before it counts. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.core.model import Job, JobId
from rota.errors import NotKeptError
from rota.store.base import Batch
from rota.store.codec import encode
from rota.store.records import Project, Row, Token, User, key_of
from rota.store.training_jobs import accepted_text

SHARED = (Token, User, Project)
"""Rows that every replica has to know. The others are history, which may lag."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A new job, and the first of those that came with it."""

    job_id: JobId
    text: str
    batch: JobId


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a batch has to be at the API server before it counts."""

    accepted: tuple[Accepted, ...] = ()
    jobs: tuple[Job, ...] = ()
    rows: Mapping[str, str] = field(default_factory=dict[str, str])
    """By their names there."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What the API server will not keep, and why: submits, by the first job of each, of which
    nothing is left there; and statuses, by their jobs."""

    submits: Mapping[JobId, NotKeptError]
    statuses: Mapping[JobId, NotKeptError]


def accepted_of(batch: Batch) -> Iterable[Accepted]:
    for each in batch.submissions:
        first = batch.submissions[0].job_id
        text = accepted_text(batch.effects.jobs[each.job_id], each, batch=first)
        yield Accepted(each.job_id, text, first)


def shared_rows(batch: Batch) -> dict[str, str]:
    return {row_name(row): encode(row) for row in batch.rows if isinstance(row, SHARED)}


def row_name(row: Row) -> str:
    """A name that a cluster takes, whatever the row is called."""
    known_by = hashlib.sha256("\n".join(key_of(row)).encode()).hexdigest()
    return f"{type(row).__name__.lower()}.{known_by[:32]}"
