"""A batch as the statements that write it."""

from __future__ import annotations

from rota.store.base import Batch
from rota.store.history import history
from rota.store.queries import queries
from rota.store.records import Profile
from rota.store.tables import (
    TABLES,
    attempt_row,
    end_row,
    event_row,
    exit_row,
    job_row,
    node_row,
    sample_row,
    submission_row,
    worker_row,
)
from rota.store.thinning import MOST_PROFILES, MOST_SAMPLES, THINNED_BY
from rota.store.writer import Statement, Values

BOUNDS = (MOST_SAMPLES, THINNED_BY)


def statements(batch: Batch) -> list[Statement]:
    """Rows come before those that refer to them, and ends before the beginnings that follow."""
    effects = batch.effects
    past = history(effects)
    named: list[tuple[str, list[Values]]] = [
        ("put_job", [job_row(each) for each in effects.jobs.values()]),
        ("put_submission", [submission_row(each) for each in batch.submissions]),
        ("end_attempt", [end_row(each) for each in past.ended]),
        ("begin_attempt", [attempt_row(each) for each in past.begun.values()]),
        ("put_worker", [worker_row(each) for each in past.workers.values()]),
        ("put_exit", [exit_row(each) for each in batch.exits]),
        ("put_event", [event_row(each, batch.actor) for each in effects.transitions]),
        *((TABLES[type(row)].put, [TABLES[type(row)].pack(row)]) for row in batch.rows),
        ("thin_profiles", [(MOST_PROFILES,)] if _has_profiles(batch) else []),
        *_samples(batch),
        ("put_node", [node_row(each) for each in effects.nodes.values() if each]),
        ("lose_node", [(node_id,) for node_id, each in effects.nodes.items() if each is None]),
    ]
    known = queries()
    return [(known[name], rows) for name, rows in named if rows]


def _has_profiles(batch: Batch) -> bool:
    return any(isinstance(row, Profile) for row in batch.rows)


def _samples(batch: Batch) -> list[tuple[str, list[Values]]]:
    """Each makes room for itself, so that any batch leaves a job with as many as it may have."""
    named: list[tuple[str, list[Values]]] = []
    for each in batch.samples:
        named.append(("put_sample", [sample_row(each)]))
        named.append(("thin_samples", [(each.job_id, each.job_id, *BOUNDS)]))
    return named
