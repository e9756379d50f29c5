"""Selects the parts of a batch that must be at the API server before it is acknowledged. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.core.model.job import Job, JobId
from rota.errors import WriteRejectedError
from rota.store.codec import encode
from rota.store.interface import Batch
from rota.store.kubernetes.crd_codec import accepted_text
from rota.store.records import Project, Row, Token, User, key_of

SHARED = (Token, User, Project)
"""Rows that all replicas share. All other rows are history and stay in the local file."""


@dataclass(frozen=True, slots=True)
class AcceptedJob:
    """A new job. `batch` is the first job of the same submit."""

    job_id: JobId
    text: str
    batch: JobId


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes that must reach the API server before the batch is acknowledged."""

    accepted: tuple[AcceptedJob, ...] = ()
    """New jobs, whose objects must be created."""
    jobs: tuple[Job, ...] = ()
    """Jobs whose status must be updated."""
    rows: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Shared rows, by name; None: the row is deleted."""


@dataclass(frozen=True, slots=True)
class RejectedWrites:
    """Writes that the API server rejects for good, with the reasons.

    `submits` has the first job of each rejected submit, of which no object remains. `statuses` has
    the jobs whose status is rejected.
    """

    submits: Mapping[JobId, WriteRejectedError]
    statuses: Mapping[JobId, WriteRejectedError]


def accepted_of(batch: Batch) -> Iterable[AcceptedJob]:
    for each in batch.submissions:
        first = batch.submissions[0].job_id
        text = accepted_text(batch.effects.jobs[each.job_id], each, batch=first)
        yield AcceptedJob(each.job_id, text, first)


def shared_rows(batch: Batch) -> dict[str, str | None]:
    """The shared rows that a batch writes; None for those that it deletes."""
    written = {row_name(row): encode(row) for row in batch.rows if isinstance(row, SHARED)}
    return written | {_row_name(Token, (each,)): None for each in batch.deleted.tokens}


def row_name(row: Row) -> str:
    """Return a name that is valid in a Secret for any key of the row.

    The class name is part of the stored name, so `Token`, `User` and `Project` must keep theirs.
    """
    return _row_name(type(row), key_of(row))


def _row_name(kind: type[Row], key: tuple[str, ...]) -> str:
    key_hash = hashlib.sha256("\n".join(key).encode()).hexdigest()
    return f"{kind.__name__.lower()}.{key_hash[:32]}"
