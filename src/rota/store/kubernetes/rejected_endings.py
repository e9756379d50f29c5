"""Ends of jobs whose final status the API server rejects, for example by an admission rule.

The store keeps such ends in shared rows, so that no later leader runs the job again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from rota.core.lifecycle.states import JobState, Purpose
from rota.core.model.job import Ended, Job, JobId, Stopping
from rota.errors import shown
from rota.store.codec import CodecError, decode, encode
from rota.store.kubernetes.crd_codec import StoredTrainingJob

log = structlog.get_logger()

PREFIX = "over."
"""Prefix of the row names. The rest is the job id."""
MAX_REASON_CHARS = 200
MAX_BYTES = 384 * 1024
"""The most that all rows may take. All shared rows are in one Secret of at most 1 MiB, which also
needs room for users and tokens."""
SHORT_AFTER_BYTES = MAX_BYTES // 2
"""From here on, rows have no reasons."""
ENDS: Mapping[Purpose, JobState] = {
    Purpose.FAIL: JobState.FAILED,
    Purpose.CANCEL: JobState.CANCELLED,
    Purpose.FINISH: JobState.SUCCEEDED,
}


@dataclass(frozen=True, slots=True)
class JobEnding:
    """The end of a job. `is_over` is False while its workers still stop."""

    phase: Ended
    is_over: bool


def job_ending(job: Job) -> JobEnding | None:
    """Return how a job ends, or None for a job that may run again."""
    phase = job.phase
    if isinstance(phase, Stopping) and phase.purpose in ENDS:
        ended = Ended(phase.since_s, ENDS[phase.purpose], phase.reason)
        return JobEnding(ended, is_over=False)
    return JobEnding(phase, is_over=True) if isinstance(phase, Ended) else None


def endings_in(rows: Mapping[str, str]) -> dict[JobId, JobEnding]:
    """Return the ends in the shared rows. Skip unreadable rows: a user may have edited them."""
    ends: dict[JobId, JobEnding] = {}
    for name, text in rows.items():
        if name.startswith(PREFIX):
            try:
                ends[JobId(name.removeprefix(PREFIX))] = decode(JobEnding, text)
            except CodecError as error:
                log.error("shared row unreadable", row=name, error=str(error))
    return ends


def with_ending(kept: StoredTrainingJob, ends: Mapping[JobId, JobEnding]) -> StoredTrainingJob:
    """Apply the rejected end of a job to its stored state.

    A job whose workers may still run becomes `Stopping`, so that its GPUs stay allocated until the
    workers have stopped.
    """
    job, end = kept.job, ends.get(kept.job.id)
    if end is None or isinstance(job.phase, Ended):
        return kept
    if end.is_over or not job.is_active:
        return replace(kept, job=replace(job, phase=end.phase))
    purpose = next(each for each, state in ENDS.items() if state is end.phase.state)
    stopping = Stopping(end.phase.at_s, job.members, job.numbers, purpose, end.phase.reason)
    return replace(kept, job=replace(job, phase=stopping))


class RejectedEndings:
    """The shared rows of rejected ends, and which of them can be deleted."""

    def __init__(self) -> None:
        self._rows: dict[str, str] = {}
        """The rows as the API server has them."""
        self._stale: set[str] = set()

    def restore(self, rows: Mapping[str, str], *, existing: Collection[JobId]) -> None:
        """Load the rows. The row of a job without an `existing` object is stale."""
        self._rows = {name: text for name, text in rows.items() if name.startswith(PREFIX)}
        self._stale = self._rows.keys() - {_row_name(each) for each in existing}

    @property
    def jobs(self) -> set[JobId]:
        """Jobs whose end the object does not have."""
        return {JobId(name.removeprefix(PREFIX)) for name in self._rows.keys() - self._stale}

    def missing_rows(self, jobs: Iterable[Job]) -> dict[str, str]:
        """Return the rows to write for these jobs: ends that the shared rows do not have yet, as
        far as there is room."""
        rows: dict[str, str] = {}
        n_bytes = sum(map(_size, self._rows.items()))
        for job in jobs:
            if (end := job_ending(job)) is None:
                continue
            name = _row_name(job.id)
            text = encode(_shortened(end, MAX_REASON_CHARS if n_bytes < SHORT_AFTER_BYTES else 0))
            before = self._rows.get(name)
            n_more = _size((name, text)) - (0 if before is None else _size((name, before)))
            if text != before and n_bytes + n_more <= MAX_BYTES:
                rows[name] = text
                n_bytes += n_more
        return rows

    def has(self, job_id: JobId) -> bool:
        """Whether the API server has a row of this job."""
        return _row_name(job_id) in self._rows

    def forget(self, job_id: JobId) -> None:
        """Mark the row of a job as stale: its object has the end now, or is gone."""
        if _row_name(job_id) in self._rows:
            self._stale.add(_row_name(job_id))

    def stale_rows(self) -> dict[str, None]:
        """Return the rows to delete."""
        return dict.fromkeys(self._stale)

    def acknowledge(self, rows: Mapping[str, str | None]) -> None:
        """Record that the API server has these rows; None means that the row is deleted."""
        for name, text in rows.items():
            self._stale.discard(name)
            if text is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = text


def _shortened(end: JobEnding, max_chars: int) -> JobEnding:
    reason = shown(end.phase.reason, max_chars) if max_chars else ""
    return replace(end, phase=replace(end.phase, reason=reason))


def _size(row: tuple[str, str]) -> int:
    name, text = row
    return len(name.encode()) + len(text.encode())


def _row_name(job_id: JobId) -> str:
    return f"{PREFIX}{job_id}"
