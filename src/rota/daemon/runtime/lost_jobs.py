"""Finds jobs that run although the store has lost them, or has lost their newest start.

The rows of a start are durable before its workers start, so a start that the store does not know
means that the store has lost its newest writes: for example, the write-ahead log was truncated.
The engine keeps a record of each start. The daemon adopts the job from it instead of stopping
workers that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from rota.core.kernel.job_table import AdoptedJob
from rota.core.lifecycle.states import Purpose
from rota.core.model.job import ActivePhase, Job, JobId, Stopping
from rota.engines.interface import FoundStart, JobRecord
from rota.errors import StoreError, StoreErrorKind
from rota.store.codec import CodecError, decode, encode
from rota.store.interface import Store
from rota.store.records import SavedState, Submission
from rota.tasks import ErrorIsolation

log = structlog.get_logger()

STOP_LOST = "held because the store has lost why the job was stopped"


class StartRecords(Protocol):
    def recorded_starts(self, *, after: JobId | None) -> Sequence[FoundStart]:
        """The newest start of each job whose end has not been reported, and of each job with a
        larger id than `after`. Blocks."""
        ...


class NoStartRecords:
    """For engines that keep no records: the cluster itself is the store."""

    def recorded_starts(self, *, after: JobId | None) -> Sequence[FoundStart]:  # noqa: ARG002 - protocol
        return ()


NO_RECORDS = NoStartRecords()


@dataclass(frozen=True, slots=True)
class LostJobs:
    jobs: tuple[AdoptedJob, ...] = ()
    submissions: tuple[Submission, ...] = ()
    warnings: tuple[str, ...] = ()


def record_of(job: Job, submission: Submission) -> JobRecord:
    """What a later daemon needs to know the job again."""
    return JobRecord(encode(job), encode(submission))


def find_lost(saved: SavedState, store: Store, *, records: StartRecords) -> LostJobs:
    """Compare the starts that the engine recorded with the store. Blocks."""
    # An unreadable job is not in the pages of the store.
    known = [*saved.unreadable, *(job.id for job in store.jobs(limit=1).jobs)]
    stored = {job.id: job for job in saved.jobs}
    comparison = _Comparison(stored, store)
    isolation = ErrorIsolation("record of a start ignored")
    for found in records.recorded_starts(after=max(known, default=None)):
        if found.job_id in saved.unreadable:
            comparison.add_unreadable(found, reason=saved.unreadable[found.job_id])
        else:
            with isolation.of(job=found.job_id):
                comparison.add(found)
    for each in comparison.warnings:
        log.warning("store differs from running workers", problem=each)
    return LostJobs(
        tuple(comparison.adopted), tuple(comparison.submissions), tuple(comparison.warnings)
    )


class _Comparison:
    def __init__(self, stored: Mapping[JobId, Job], store: Store) -> None:
        self._stored, self._store = stored, store
        self.adopted: list[AdoptedJob] = []
        self.submissions: list[Submission] = []
        self.warnings: list[str] = []

    def add(self, found: FoundStart) -> None:
        known = self._stored.get(found.job_id)
        if known is not None and known.attempt >= found.attempt:
            return
        recorded = _decoded(found)
        if known is None and self._is_stored(found.job_id):
            if found.is_running:
                self.warnings.append(f"job {found.job_id} is over, but still runs: it is stopped")
        elif recorded is not None:
            job, submission = recorded
            what = "the job" if known is None else f"attempt {job.attempt} of the job"
            self.warnings.append(f"the store has lost {what} {job.id} of {job.spec.user}: adopted")
            self.adopted.append(AdoptedJob(job, known))
            self.submissions.append(submission)
        elif found.is_running:
            self.warnings.append(
                f"the store does not know job {found.job_id}, and there is no usable record of it:"
                " its workers are stopped"
            )

    def add_unreadable(self, found: FoundStart, *, reason: str) -> None:
        """Adopt a running job whose row cannot be read. Without a usable record, nothing knows its
        GPUs, and other jobs could get them: no job starts while it runs."""
        if not found.is_running:
            return
        recorded = _decoded(found)
        if recorded is None:
            raise StoreError(
                StoreErrorKind.DAMAGED,
                f"job {found.job_id} runs, and the store cannot read it: {reason}",
                "restore a backup, use the rota that wrote the job, or wait until it ends",
            )
        job, submission = recorded
        self.warnings.append(f"the store cannot read the running job {job.id}: adopted")
        self.adopted.append(AdoptedJob(job, None))
        self.submissions.append(submission)

    def _is_stored(self, job_id: JobId) -> bool:
        try:
            return self._store.job(job_id) is not None
        except StoreError as error:
            if error.kind is StoreErrorKind.DAMAGED:
                return True
            raise


def _decoded(found: FoundStart) -> tuple[Job, Submission] | None:
    if found.record is None:
        return None
    try:
        job = decode(Job, found.record.job)
        submission = decode(Submission, found.record.submission)
    except CodecError as error:
        log.warning("record of a start not readable", job=found.job_id, error=str(error))
        return None
    is_same = job.id == submission.job_id == found.job_id and job.attempt == found.attempt
    if not is_same or not isinstance(job.phase, ActivePhase):
        return None
    if found.is_stopped:
        # A cancel, a hold or a preemption: the store has lost which.
        since_s, slots = job.phase.since_s, job.members
        phase = Stopping(since_s, slots, job.numbers, Purpose.HOLD, STOP_LOST)
        job = replace(job, phase=phase)
    return job, submission
