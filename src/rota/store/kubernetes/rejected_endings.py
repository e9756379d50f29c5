"""Ends of jobs that their objects were not allowed to take, because a rule of the cluster refuses
such a status. They are kept in rows that every replica knows, so that none runs such a job again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from rota.core.model import Ended, Job, JobId, Purpose, Stopping
from rota.core.states import State
from rota.errors import shown
from rota.store.codec import CodecError, decode, encode
from rota.store.training_jobs import Kept

log = structlog.get_logger()

PREFIX = "over."
"""How the rows are called. What follows is the job's id."""
WORDS = 200
"""Characters of a reason that are kept there: all rows together are one object."""
ENDS: Mapping[Purpose, State] = {
    Purpose.FAIL: State.FAILED,
    Purpose.CANCEL: State.CANCELLED,
    Purpose.FINISH: State.SUCCEEDED,
}


@dataclass(frozen=True, slots=True)
class End:
    """Of a job that `is_over`, or will be as soon as its workers are gone."""

    phase: Ended
    is_over: bool


def end_of(job: Job) -> End | None:
    """None of a job that may run again."""
    phase = job.phase
    if isinstance(phase, Stopping) and phase.purpose in ENDS:
        ended = Ended(phase.since_s, ENDS[phase.purpose], phase.reason)
        return End(ended, is_over=False)
    return End(phase, is_over=True) if isinstance(phase, Ended) else None


def ends_in(rows: Mapping[str, str]) -> dict[JobId, End]:
    """What the rows of a cluster say. Somebody may have edited them by hand."""
    ends: dict[JobId, End] = {}
    for name, text in rows.items():
        if name.startswith(PREFIX):
            try:
                ends[JobId(name.removeprefix(PREFIX))] = decode(End, text)
            except CodecError as error:
                log.error("what the cluster keeps cannot be read", name=name, error=str(error))
    return ends


def with_its_end(kept: Kept, ends: Mapping[JobId, End]) -> Kept:
    """What the object of a job was not allowed to say of it. Workers that it may still have are to
    stop, and hold what they have until then."""
    job, end = kept.job, ends.get(kept.job.id)
    if end is None or isinstance(job.phase, Ended):
        return kept
    if end.is_over or not job.is_active:
        return replace(kept, job=replace(job, phase=end.phase))
    purpose = next(each for each, state in ENDS.items() if state is end.phase.state)
    stopping = Stopping(end.phase.at_s, job.members, job.numbers, purpose, end.phase.reason)
    return replace(kept, job=replace(job, phase=stopping))


class Untold:
    def __init__(self) -> None:
        self._rows: dict[str, str] = {}
        """Those at the cluster."""
        self._stale: set[str] = set()

    def begin(self, rows: Mapping[str, str], *, there: Collection[JobId]) -> None:
        """Go on from what the cluster keeps. Of jobs whose objects are not `there` nobody has to
        know it any more."""
        self._rows = {name: text for name, text in rows.items() if name.startswith(PREFIX)}
        self._stale = self._rows.keys() - {_name(each) for each in there}

    @property
    def jobs(self) -> set[JobId]:
        return {JobId(name.removeprefix(PREFIX)) for name in self._rows.keys() - self._stale}

    def look(self, jobs: Iterable[Job]) -> dict[str, str]:
        """The rows that have to say how these ended, and do not yet."""
        ends = {_name(job.id): end for job in jobs if (end := end_of(job))}
        rows = {name: encode(_shortened(end)) for name, end in ends.items()}
        return {name: text for name, text in rows.items() if self._rows.get(name) != text}

    def forget(self, job_id: JobId) -> None:
        """Its object says so by now, or is gone."""
        if _name(job_id) in self._rows:
            self._stale.add(_name(job_id))

    def due(self) -> dict[str, None]:
        """The rows that nobody needs any more."""
        return dict.fromkeys(self._stale)

    def told(self, rows: Mapping[str, str | None]) -> None:
        """These rows are at the cluster, or no longer there."""
        for name, text in rows.items():
            self._stale.discard(name)
            if text is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = text


def _shortened(end: End) -> End:
    return replace(end, phase=replace(end.phase, reason=shown(end.phase.reason, WORDS)))


def _name(job_id: JobId) -> str:
    return f"{PREFIX}{job_id}"
