"""A batch on its way through a cluster's store: what of it has to be at the API server, and who
waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from rota.core.model import JobId
from rota.errors import NotKeptError, UnfencedError
from rota.store.base import Batch
from rota.store.changes import Changes
from rota.store.untold import end_of

NOTHING = Batch()


@dataclass(frozen=True, slots=True)
class HandedIn:
    batch: Batch = NOTHING
    changes: Changes = field(default_factory=Changes)
    done: Future[None] = field(default_factory=Future[None])
    resumes: bool = False

    @property
    def submit(self) -> JobId | None:
        """The first job that came with it."""
        return self.changes.accepted[0].batch if self.changes.accepted else None

    def unfenced(self, refused: Mapping[JobId, NotKeptError]) -> UnfencedError | None:
        """Of its jobs, those whose statuses are refused. What ends needs no fence."""
        jobs = [job.id for job in self.changes.jobs if job.id in refused and end_of(job) is None]
        return UnfencedError({each: str(refused[each]) for each in jobs}) if jobs else None

    def follow(self, written: Future[None], *, unfenced: UnfencedError | None) -> None:
        """Done as the file is with it."""
        written.add_done_callback(lambda _: self._end(written.exception() or unfenced))

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
