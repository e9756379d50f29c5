"""What the daemon asks of a store: durable writes, and answers about what was written."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from rota.core.effects import Effects
from rota.core.model import Job, JobId, Node
from rota.store.records import (
    ALL,
    Attempt,
    Entry,
    Exit,
    JobFilter,
    Page,
    Profile,
    Project,
    Row,
    Sample,
    Saved,
    Submission,
    Token,
    Usage,
    User,
)

R = TypeVar("R", Node, Project, User, Token, Usage, Profile)
PAGE_SIZE = 100
STORY_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Batch:
    """What is written together or not at all. `actor` is who caused it, if it was a person."""

    effects: Effects = field(default_factory=lambda: Effects(now=0.0))
    submissions: tuple[Submission, ...] = ()
    exits: tuple[Exit, ...] = ()
    rows: tuple[Row, ...] = ()
    samples: tuple[Sample, ...] = ()
    actor: str = ""

    def copied(self) -> Batch:
        """What happens to its values after the call does not matter."""
        of = self.effects
        jobs, nodes = dict(of.jobs), dict(of.nodes)
        copied = Effects(of.now, jobs, nodes, list(of.transitions), list(of.commands))
        return replace(self, effects=copied)

    def without(self, left_out: Collection[JobId]) -> Batch:
        """All of it that is not about these jobs."""
        of = self.effects
        jobs = {each: job for each, job in of.jobs.items() if each not in left_out}
        transitions = [each for each in of.transitions if each.job_id not in left_out]
        exits = tuple(each for each in self.exits if each.job_id not in left_out)
        return replace(self, effects=replace(of, jobs=jobs, transitions=transitions), exits=exits)


class Store(Protocol):
    """Every method may be called from any thread, and raises `StoreError` when it cannot."""

    def write(self, batch: Batch) -> Future[None]:
        """The future is done when the batch is on the disk, or failed when it is not.

        Batches that succeed take effect in the order of the calls. When the file cannot be
        written, all that was handed in fails, until `resume`: later batches may rest upon earlier
        ones. The batch is read during the call: what happens to its values later does not
        matter."""
        ...

    def resume(self) -> Future[None]:
        """Go on after a failed write: whatever is handed in from now on counts again. The future
        fails if the file still cannot be written."""
        ...

    def load(self) -> Saved:
        """The jobs that are not over, the nodes, and how the other jobs ended."""
        ...

    def job(self, job_id: JobId) -> Job | None: ...

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> Page:
        """A page of jobs, the newest first; `before` is the `next` of the page before."""
        ...

    def submission(self, job_id: JobId) -> Submission | None: ...

    def job_with_key(self, user: str, key: str) -> JobId | None:
        """The job that this user submitted under this idempotency key."""
        ...

    def attempts(self, job_id: JobId) -> list[Attempt]:
        """The job's attempts with their workers, the first first."""
        ...

    def story(
        self, job_id: JobId | None = None, *, after: int = 0, limit: int = STORY_SIZE
    ) -> list[Entry]:
        """What happened to a job, or to all of them, after the entry of that number."""
        ...

    def newest_entry(self) -> int:
        """The number of the newest entry of the story; 0 before the first."""
        ...

    def samples(self, job_id: JobId) -> list[Sample]:
        """How a job trained, the first first; thinned where they stood close."""
        ...

    def rows(self, kind: type[R]) -> list[R]:
        """All nodes, projects, users, tokens, usage or profiles, by their keys."""
        ...

    def close(self) -> None:
        """Finishes what was handed in."""
        ...
