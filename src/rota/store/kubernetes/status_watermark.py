"""The watermark: every TrainingJob with an id up to it has had a status.

The seal on a new object proves that rota accepted the job, until the status repeats the content.
A seal never expires, so a user could restore the object of an ended job and run the job again.
Job ids increase. Therefore an object without a status and with an id up to the watermark is not the
original object, and the store ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rota.core.model.job import JobId

ROW = "settled"
"""Name of the shared row that holds the watermark."""


class StatusWatermark:
    """Computes the watermark from the jobs that wait for their first status."""

    def __init__(self, rows: Mapping[str, str] = MappingProxyType({})) -> None:
        self._mark = rows.get(ROW, "")
        self._pending: set[JobId] = set()
        """Jobs whose object has no status yet, or does not exist yet."""
        self._settled: set[JobId] = set()
        """All other jobs above the watermark."""

    def covers(self, job_id: JobId) -> bool:
        """Whether the original object of this job has had a status."""
        return job_id <= self._mark

    def expect(self, job_ids: Iterable[JobId]) -> None:
        """Hold the watermark below these jobs until they are settled."""
        self._pending.update(job_ids)

    def settle(self, job_id: JobId) -> None:
        """Record that the object has a status, or does not need one any more."""
        self._pending.discard(job_id)
        if not self.covers(job_id):
            self._settled.add(job_id)

    def next_row(self) -> dict[str, str]:
        """Return the row with a higher watermark, or nothing if it has not advanced."""
        first = min(self._pending, default=None)
        below = (each for each in self._settled if first is None or each < first)
        reached = max(below, default="")
        return {ROW: reached} if reached else {}

    def acknowledge(self, rows: Mapping[str, str]) -> None:
        """Advance the watermark after the row of `next_row` is written."""
        self._mark = rows.get(ROW, self._mark)
        self._settled = {each for each in self._settled if not self.covers(each)}
