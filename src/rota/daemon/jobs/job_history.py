"""State changes of jobs, in the order in which the store recorded them."""

from __future__ import annotations

from dataclasses import replace

from rota.core.model.job import JobId
from rota.daemon.access.authorization import Caller, may_see, may_see_all
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.views import redact_reason, story_entry
from rota.store.interface import Store
from rota.wire.jobs import StoryEntry


class JobHistory:
    def __init__(self, directory: JobDirectory, store: Store) -> None:
        self._directory = directory
        self._store = store

    def newest_number(self) -> int:
        """The number of the last entry of all jobs."""
        return self._store.newest_entry()

    def entries(
        self, caller: Caller, job_id: JobId | None, *, after: int, limit: int
    ) -> list[StoryEntry]:
        """Entries with numbers above `after`; of all jobs without a `job_id`."""
        found = self._store.story(job_id, after=after, limit=limit)
        return [self._for_caller(caller, story_entry(each)) for each in found]

    def _for_caller(self, caller: Caller, entry: StoryEntry) -> StoryEntry:
        public = redact_reason(entry.reason)
        if public == entry.reason or may_see_all(caller):
            return entry
        job = self._directory.get(JobId(entry.job_id))
        if job is not None and may_see(caller, job):
            return entry
        return replace(entry, reason=public)
