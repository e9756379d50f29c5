"""Up to which job every object has had a status.

What was accepted is sealed in an object until its status says the same, and a seal is good for
ever: whoever puts such an object back when its job is over would have it run once more. Ids of jobs
grow. So one without a status, whose id is not above the mark, is not the one that we made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rota.core.model import JobId

ROW = "settled"
"""How the row is called that every replica knows the mark by."""


class Settled:
    """Goes on from the rows that the cluster keeps."""

    def __init__(self, rows: Mapping[str, str] = MappingProxyType({})) -> None:
        self._mark = rows.get(ROW, "")
        self._open: set[JobId] = set()
        """Their objects have no status yet, or are still to be made."""
        self._done: set[JobId] = set()
        """All others above the mark."""

    def covers(self, job_id: JobId) -> bool:
        """Such an object has a status, if it is the one that was made."""
        return job_id <= self._mark

    def expect(self, job_ids: Iterable[JobId]) -> None:
        self._open.update(job_ids)

    def settle(self, job_id: JobId) -> None:
        """It has one by now, or needs none any more."""
        self._open.discard(job_id)
        if not self.covers(job_id):
            self._done.add(job_id)

    def due(self) -> dict[str, str]:
        """The row that says how far it has come; nothing, if that is known."""
        first = min(self._open, default=None)
        reached = max((each for each in self._done if first is None or each < first), default="")
        return {ROW: reached} if reached else {}

    def told(self, rows: Mapping[str, str]) -> None:
        """What of these rows is the mark is at the cluster."""
        self._mark = rows.get(ROW, self._mark)
        self._done = {each for each in self._done if not self.covers(each)}
