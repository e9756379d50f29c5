"""Translates a batch to the SQL statements that write it."""

from __future__ import annotations

from rota.store.attempt_history import history
from rota.store.interface import Batch
from rota.store.records import ProfileRecord
from rota.store.retention import DELETED_SAMPLES, MAX_PROFILES, MAX_SAMPLES
from rota.store.sqlite.row_codec import (
    TABLES,
    attempt_row,
    end_row,
    event_row,
    exit_row,
    hash_of,
    job_row,
    node_row,
    sample_row,
    submission_row,
    worker_row,
)
from rota.store.sqlite.sql_loader import queries
from rota.store.sqlite.writer import Statement, Values

SAMPLE_LIMITS = (MAX_SAMPLES, DELETED_SAMPLES)
JOB_DELETIONS = (
    "delete_samples",
    "delete_events",
    "delete_workers",
    "delete_attempts",
    "delete_tokens_of_job",
    "delete_submission",
    "delete_job",
)
"""Delete the rows of a job, those that refer to other rows first."""


def statements(batch: Batch) -> list[Statement]:
    """Return the statements in an order that satisfies the constraints of the schema.

    A row precedes the rows that refer to it. The end of an attempt precedes the start of the next
    attempt, because a job has at most one live attempt.
    """
    effects = batch.effects
    changed = history(effects)
    named: list[tuple[str, list[Values]]] = [
        ("put_job", [job_row(each) for each in effects.jobs.values()]),
        ("put_common", [(hash_of(each), each) for each in _common(batch)]),
        ("put_submission", [submission_row(each) for each in batch.submissions]),
        ("end_attempt", [end_row(each) for each in changed.ended]),
        ("begin_attempt", [attempt_row(each) for each in changed.begun.values()]),
        ("put_worker", [worker_row(each) for each in changed.workers.values()]),
        ("put_exit", [exit_row(each) for each in batch.exits]),
        ("put_event", [event_row(each, batch.actor) for each in effects.transitions]),
        *((TABLES[type(row)].put, [TABLES[type(row)].pack(row)]) for row in batch.rows),
        ("thin_profiles", [(MAX_PROFILES,)] if _has_profiles(batch) else []),
        *_samples(batch),
        ("put_node", [node_row(each) for each in effects.nodes.values() if each]),
        ("lose_node", [(node_id,) for node_id, each in effects.nodes.items() if each is None]),
        *((name, [(job_id,) for job_id in batch.deleted.jobs]) for name in JOB_DELETIONS),
        ("delete_unused_common", [()] if batch.deleted.jobs else []),
        ("delete_event", [(number,) for number in batch.deleted.entries]),
        ("delete_token", [(token_id,) for token_id in batch.deleted.tokens]),
    ]
    sql = queries()
    return [(sql[name], rows) for name, rows in named if rows]


def _common(batch: Batch) -> dict[str, None]:
    return dict.fromkeys(each.common for each in batch.submissions if each.common)


def _has_profiles(batch: Batch) -> bool:
    return any(isinstance(row, ProfileRecord) for row in batch.rows)


def _samples(batch: Batch) -> list[tuple[str, list[Values]]]:
    """Thin out after every sample, so that a job never has more than `MAX_SAMPLES` at a commit."""
    named: list[tuple[str, list[Values]]] = []
    for each in batch.samples:
        named.append(("put_sample", [sample_row(each)]))
        named.append(("thin_samples", [(each.job_id, each.job_id, *SAMPLE_LIMITS)]))
    return named
