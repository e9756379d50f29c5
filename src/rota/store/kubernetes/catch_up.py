"""Brings the file of a replica into step with what the cluster keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace

import structlog

from rota.core.effects import Effects, Transition
from rota.core.model import Ended, Job, JobId
from rota.core.states import State
from rota.store.base import Batch, Store
from rota.store.codec import CodecError, decode
from rota.store.fences import essence
from rota.store.history import ALIVE
from rota.store.records import Project, Submission, Token, User
from rota.store.training_jobs import Kept

log = structlog.get_logger()

CAUSE = "TakenOver"
GONE = "its TrainingJob is gone from the cluster"
KINDS: dict[str, type[Token | User | Project]] = {
    "token": Token,
    "user": User,
    "project": Project,
}


class File:
    """What a replica knew of jobs before it began: looked at once, as most that the cluster keeps
    are new to it, or run."""

    def __init__(self, store: Store) -> None:
        saved, self._store = store.load(), store
        self.live, self.outcomes = {job.id: job for job in saved.jobs}, saved.outcomes

    def job(self, job_id: JobId) -> Job | None:
        if job_id in self.outcomes:
            return self._store.job(job_id)
        return self.live.get(job_id)


def with_the_file(kept: Kept, file: File) -> Kept:
    """What an object is told later, the file may know already; and what is over stays so, whoever
    put an object back."""
    known = file.job(kept.job.id)
    if known is None or known == kept.job or isinstance(kept.job.phase, Ended):
        return kept
    is_same = essence(known) == essence(kept.job) and _moment(known) >= _moment(kept.job)
    return replace(kept, job=known) if is_same or isinstance(known.phase, Ended) else kept


def _moment(job: Job) -> tuple[float, float]:
    """How far a job's own clocks are, of two that are the same in all that counts."""
    return job.service.as_of_s, job.epochs_done


def catch_up(
    store: Store, kept: Iterable[Kept], *, file: File, gone: Iterable[Job], rows: Mapping[str, str]
) -> Future[None]:
    """The file then has every job of the cluster, and what is `gone` from there is over."""
    effects = Effects(now=0.0)
    submissions: list[Submission] = []
    for each in kept:
        known = file.job(each.job.id)
        _put(each.job, known, effects=effects)
        if known is None or store.submission(each.job.id) is None:
            submissions.append(_with_a_free_key(each.submission, store))
    for job in gone:
        over = Ended(job.service.as_of_s, State.CANCELLED, GONE)
        _put(replace(job, phase=over), job, effects=effects)
    return store.write(Batch(effects, tuple(submissions), rows=tuple(_shared(rows))))


def catch_up_rows(store: Store, rows: Mapping[str, str]) -> Future[None]:
    """The file then knows of everybody, and of no job more than before."""
    return store.write(Batch(rows=tuple(_shared(rows))))


def _shared(rows: Mapping[str, str]) -> Iterator[Token | User | Project]:
    """Somebody may have edited them by hand."""
    for name, text in rows.items():
        kind = KINDS.get(name.partition(".")[0])
        try:
            if kind is not None:
                yield decode(kind, text)
        except CodecError as error:
            log.error("what the cluster keeps cannot be read", name=name, error=str(error))


def _put(job: Job, known: Job | None, *, effects: Effects) -> None:
    """With the lines of its story that lead from what was known to what is."""
    if job == known:
        return
    effects.jobs[job.id] = job
    before = known.state if known else None
    is_another = known is None or known.attempt != job.attempt
    if known is not None and before in ALIVE and job.state in ALIVE and is_another:
        _step(known, before, after=State.QUEUED, at_s=job.service.as_of_s, effects=effects)
        before = State.QUEUED
    if before is not job.state or is_another:
        told = job if job.state in ALIVE or known is None else known
        _step(told, before, after=job.state, at_s=job.service.as_of_s, effects=effects)


def _step(job: Job, before: State | None, *, after: State, at_s: float, effects: Effects) -> None:
    row = Transition(at_s, job.id, job.attempt, before, after, CAUSE, "taken over")
    effects.transitions.append(row)


def _with_a_free_key(submission: Submission, store: Store) -> Submission:
    """A file that was away for a while may know the key as another job's."""
    key = submission.key
    owner: JobId | None = store.job_with_key(submission.user, key) if key is not None else None
    return submission if owner is None else replace(submission, key=None)
