"""The protocol of a store: durable writes in batches, and queries over the written state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from rota.core.model.effects import Effects
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node
from rota.store.records import (
    ALL,
    Attempt,
    AuditEntry,
    Exit,
    JobFilter,
    ProfileRecord,
    Project,
    Row,
    SampleRecord,
    SavedState,
    StoredJobPage,
    Submission,
    Token,
    UsageRecord,
    User,
)

R = TypeVar("R", Node, Project, User, Token, UsageRecord, ProfileRecord)
PAGE_SIZE = 100
STORY_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Deletions:
    """Rows that a batch deletes: jobs with everything that belongs to them, entries of the audit
    log by their numbers, and tokens by their ids. A row that does not exist is no error."""

    jobs: tuple[JobId, ...] = ()
    entries: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()


NO_DELETIONS = Deletions()


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that a store writes together or not at all.

    `actor` is the user who caused the changes, or empty if no user did.
    """

    effects: Effects = field(default_factory=lambda: Effects(now=0.0))
    submissions: tuple[Submission, ...] = ()
    exits: tuple[Exit, ...] = ()
    rows: tuple[Row, ...] = ()
    samples: tuple[SampleRecord, ...] = ()
    deleted: Deletions = NO_DELETIONS
    actor: str = ""

    def copied(self) -> Batch:
        """Return a batch that later changes of the caller's effects do not affect."""
        effects = self.effects
        copied = Effects(
            effects.now,
            dict(effects.jobs),
            dict(effects.nodes),
            list(effects.transitions),
            list(effects.commands),
        )
        return replace(self, effects=copied)

    def without(self, excluded: Collection[JobId]) -> Batch:
        """Return the batch without the changes of these jobs."""
        effects = self.effects
        kept = replace(
            effects,
            jobs={each: job for each, job in effects.jobs.items() if each not in excluded},
            transitions=[each for each in effects.transitions if each.job_id not in excluded],
        )
        exits = tuple(each for each in self.exits if each.job_id not in excluded)
        return replace(self, effects=kept, exits=exits)


class Store(Protocol):
    """Any thread may call any method. A method raises `StoreError` when it fails."""

    def write(self, batch: Batch) -> Future[None]:
        """Queue a batch. The future completes when the batch is durable, or fails if the write did.

        Batches take effect in the order of the calls. After a failed write, every queued batch
        fails until `resume`, because a later batch may depend on an earlier one. The store reads
        the batch during the call: the caller may change its values afterwards."""
        ...

    def resume(self) -> Future[None]:
        """Accept writes again after a failed write. The future fails if writing still fails."""
        ...

    def load(self) -> SavedState:
        """Return the jobs that have not ended, the nodes, and the final states of the ended jobs
        that these jobs depend on."""
        ...

    def job(self, job_id: JobId) -> Job | None: ...

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> StoredJobPage:
        """Return a page of jobs, newest first. `before` is the `next` of the previous page."""
        ...

    def count_jobs(self, wanted: JobFilter = ALL) -> int:
        """Return the number of jobs that match; `word` of the filter is not used."""
        ...

    def submission(self, job_id: JobId) -> Submission | None: ...

    def request_bytes(self) -> Mapping[str, int]:
        """Return the stored bytes of the programs of each user's jobs, equal parts counted once."""
        ...

    def job_with_key(self, user: str, key: str) -> JobId | None:
        """Return the job that the user submitted with this idempotency key."""
        ...

    def attempts(self, job_id: JobId) -> list[Attempt]:
        """Return the attempts of a job with their workers, oldest first."""
        ...

    def story(
        self, job_id: JobId | None = None, *, after: int = 0, limit: int = STORY_SIZE
    ) -> list[AuditEntry]:
        """Return audit entries of one job, or of all jobs, with a number above `after`."""
        ...

    def newest_entry(self) -> int:
        """Return the number of the newest audit entry, or 0 if there is none."""
        ...

    def samples(self, job_id: JobId) -> list[SampleRecord]:
        """Return the training samples of a job, oldest first, thinned out by `retention`."""
        ...

    def expired_jobs(self, before_s: float, *, keep: Collection[JobId], limit: int) -> list[JobId]:
        """Return jobs that ended before this time and are not in `keep`, oldest first.

        The newest job and the job of the newest audit entry never expire, so that numbers and ids
        keep increasing."""
        ...

    def expired_entries(self, before_s: float, *, limit: int) -> list[int]:
        """Return the numbers of audit entries from before this time, oldest first. The newest entry
        of each job never expires before its job."""
        ...

    def rows(self, kind: type[R]) -> list[R]:
        """Return all nodes, projects, users, tokens, usage or profiles, sorted by key."""
        ...

    def close(self) -> None:
        """Write all queued batches, then release the resources of the store."""
        ...
