"""Updates the local file of a new leader from the TrainingJob objects and the shared rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace

import structlog

from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects, Transition
from rota.core.model.job import Ended, Job, JobId
from rota.store.attempt_history import ALIVE
from rota.store.codec import CodecError, decode
from rota.store.interface import Batch, Store
from rota.store.kubernetes.crd_codec import StoredTrainingJob
from rota.store.kubernetes.fence_fields import fence_fields
from rota.store.records import Project, Submission, Token, User

log = structlog.get_logger()

CAUSE = "TakenOver"
OBJECT_DELETED = "its TrainingJob was deleted from the cluster"
ROW_KINDS: dict[str, type[Token | User | Project]] = {
    "token": Token,
    "user": User,
    "project": Project,
}


class LocalJobs:
    """The jobs in the local file, as they were before the catch-up.

    Live jobs are loaded once; an ended job is read on demand, because few ended jobs are needed.
    """

    def __init__(self, store: Store) -> None:
        saved, self._store = store.load(), store
        self.live, self.outcomes = {job.id: job for job in saved.jobs}, saved.outcomes

    def job(self, job_id: JobId) -> Job | None:
        return self.live.get(job_id) or self._store.job(job_id)


def merged_with_local(stored: StoredTrainingJob, local_jobs: LocalJobs) -> StoredTrainingJob:
    """Prefer the local job where it is newer than the object.

    The local file may have progress that the object gets later. A job that has ended locally stays
    ended, even if a user restored an older object.
    """
    local = local_jobs.job(stored.job.id)
    if local is None or local == stored.job or isinstance(stored.job.phase, Ended):
        return stored
    has_same_fence = fence_fields(local) == fence_fields(stored.job)
    is_newer = has_same_fence and _progress(local) >= _progress(stored.job)
    return replace(stored, job=local) if is_newer or isinstance(local.phase, Ended) else stored


def catch_up(
    store: Store,
    stored: Iterable[StoredTrainingJob],
    *,
    local_jobs: LocalJobs,
    deleted: Iterable[Job],
    rows: Mapping[str, str],
) -> Future[None]:
    """Write every job of the cluster to the local file, and end the jobs of `deleted` objects."""
    effects = Effects(now=0.0)
    submissions: list[Submission] = []
    for each in stored:
        local = local_jobs.job(each.job.id)
        _put(each.job, local, effects=effects)
        if local is None or store.submission(each.job.id) is None:
            submissions.append(_without_used_key(each.submission, store))
    for job in deleted:
        ended = Ended(job.service.as_of_s, JobState.CANCELLED, OBJECT_DELETED)
        _put(replace(job, phase=ended), job, effects=effects)
    return store.write(Batch(effects, tuple(submissions), rows=tuple(_decoded_rows(rows))))


def catch_up_rows(store: Store, rows: Mapping[str, str]) -> Future[None]:
    """Write only the users, tokens and projects to the local file."""
    return store.write(Batch(rows=tuple(_decoded_rows(rows))))


def _progress(job: Job) -> tuple[float, float]:
    """Order two versions of a job that have the same fence fields."""
    return job.service.as_of_s, job.epochs_done


def _decoded_rows(rows: Mapping[str, str]) -> Iterator[Token | User | Project]:
    """Skip unreadable rows: a user may have edited them."""
    for name, text in rows.items():
        kind = ROW_KINDS.get(name.partition(".")[0])
        try:
            if kind is not None:
                yield decode(kind, text)
        except CodecError as error:
            log.error("shared row unreadable", row=name, error=str(error))


def _put(job: Job, local: Job | None, *, effects: Effects) -> None:
    """Add the job, and the transitions from its local state to its state in the cluster."""
    if job == local:
        return
    effects.jobs[job.id] = job
    before = local.state if local else None
    is_new_attempt = local is None or local.attempt != job.attempt
    if local is not None and before in ALIVE and job.state in ALIVE and is_new_attempt:
        _add_transition(
            local, before, after=JobState.QUEUED, at_s=job.service.as_of_s, effects=effects
        )
        before = JobState.QUEUED
    if before is not job.state or is_new_attempt:
        subject = job if job.state in ALIVE or local is None else local
        _add_transition(subject, before, after=job.state, at_s=job.service.as_of_s, effects=effects)


def _add_transition(
    job: Job, before: JobState | None, *, after: JobState, at_s: float, effects: Effects
) -> None:
    row = Transition(at_s, job.id, job.attempt, before, after, CAUSE, "taken over")
    effects.transitions.append(row)


def _without_used_key(submission: Submission, store: Store) -> Submission:
    """Drop the idempotency key if the local file, which may be outdated, has it for another job."""
    key = submission.key
    owner: JobId | None = store.job_with_key(submission.user, key) if key is not None else None
    return submission if owner is None else replace(submission, key=None)
