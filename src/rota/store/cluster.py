"""The store of a cluster: the API server has the truth, a SQLite file beside it the history.

A batch counts when the objects say what others rest upon: a submit is an object before it is
acknowledged, and a fence is in a status before anything runs. What is asked is answered
from the file, which is brought into step when a daemon begins with others' jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import structlog

from rota.core.model import Ended, JobId, Node
from rota.core.states import State
from rota.errors import NotKeptError, StoreError, Trouble, UnavailableError, UnfencedError
from rota.store.base import Batch, Store
from rota.store.handed_in import HandedIn
from rota.store.publishing import Publisher
from rota.store.records import Saved
from rota.store.replica import File, catch_up, catch_up_rows, with_the_file
from rota.store.resources import Resources
from rota.store.settled import Settled
from rota.store.training_jobs import (
    Kept,
    Object,
    Shown,
    id_of,
    is_bare,
    kept_of,
    without_the_unaccepted,
)
from rota.store.untold import ends_in, with_its_end
from rota.tasks import Bugs

log = structlog.get_logger()

LATE_S = 3.0
"""How long what is only good to know waits before it is told again of the same job."""
REST_FACTOR = 2.0
"""Telling some of it is followed by a rest of so many times its own length."""


class ClusterStore:
    """Satisfies `rota.store.base.Store`. Lives in the event loop that made it; `load` and `close`
    are for other threads."""

    def __init__(
        self,
        local: Store,
        resources: Resources,
        *,
        key: bytes,
        nodes: Callable[[], tuple[Node, ...]],
        spare: Callable[[frozenset[JobId]], None] = lambda _: None,
    ) -> None:
        """`spare` is told of jobs that nobody can read, as long as this daemon lives: what runs
        of them stays."""
        self._local, self._resources, self._key = local, resources, key
        self._nodes, self._spare = nodes, spare
        self._strange: frozenset[JobId] = frozenset()
        self._unread: set[JobId] = set()
        """Strange ones without a status: a version of us that can read them has yet to give them
        one."""
        self._publisher = Publisher(resources, key=key)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[HandedIn | None] = asyncio.Queue()
        self._failure: StoreError | None = None
        self._refused: set[JobId] = set()
        """Jobs that the cluster does not keep, until they are over: nothing for the file."""
        self._is_closed = False
        self._bugs = Bugs("statuses could not be brought up to date")
        self._pump = self._loop.create_task(self._run())
        self._aside = self._loop.create_task(self._tell_late())
        self.job, self.jobs, self.submission = local.job, local.jobs, local.submission
        self.job_with_key, self.attempts = local.job_with_key, local.attempts
        self.story, self.newest_entry = local.story, local.newest_entry
        self.samples, self.rows = local.samples, local.rows

    def write(self, batch: Batch) -> Future[None]:
        return self._hand_in(HandedIn(batch.copied(), self._publisher.look(batch)))

    def resume(self) -> Future[None]:
        return self._hand_in(HandedIn(resumes=True))

    def prepare(self) -> None:
        """What whoever asks has to find from the first moment on: who people are."""
        catch_up_rows(self._local, self._from_outside(self._resources.rows())).result()

    def load(self) -> Saved:
        rows: dict[str, str] = self._from_outside(self._resources.rows())
        told: list[Kept] = self._from_outside(self._gather(rows))
        ends, file = ends_in(rows), File(self._local)
        kept = [with_the_file(with_its_end(each, ends), file) for each in told]
        behind = [new.job.id for old, new in zip(told, kept, strict=True) if old is not new]
        there = self._strange | {each.job.id for each in kept}
        gone = [job for job in file.live.values() if job.id not in there]
        catch_up(self._local, kept, file=file, gone=gone, rows=rows).result()
        self._from_outside(self._begin(kept, behind, rows=rows))
        jobs = tuple(each.job for each in kept if not isinstance(each.job.phase, Ended))
        outcomes = {each.job.id: each.job.state for each in kept} | dict(file.outcomes)
        outcomes |= {job.id: State.CANCELLED for job in gone}
        # What a job waits for and nobody knows any more has succeeded: else the job were over.
        after = {each for job in jobs for each in job.spec.after} - self._strange
        needed = dict.fromkeys(after, State.SUCCEEDED)
        ended = {each: state for each, state in (needed | outcomes).items() if state.is_final}
        return Saved(jobs, self._publisher.drains.applied(self._nodes()), ended)

    def close(self) -> None:
        self._from_outside(self._finish())
        self._local.close()

    # -- what only a cluster's store can do -----------------------------------------------------

    def adopt(self, job_id: JobId, name: str) -> None:
        """The next submit under this id stands for an object that is there already."""
        self._publisher.adopt(job_id, name)

    def show(self, job_id: JobId, shown: Shown) -> None:
        """What people should see of a job, in a while."""
        self._publisher.show(job_id, shown)

    def shown(self, job_id: JobId) -> Shown:
        return self._publisher.shown(job_id)

    def object_of(self, job_id: JobId) -> str:
        """The name of a job's object, while it is ours to write."""
        return self._publisher.name_of(job_id)

    def is_publishing(self, job_id: JobId) -> bool:
        """Whether its object is ours to write."""
        return self._publisher.knows(job_id)

    def lose(self, job_id: JobId) -> None:
        """Somebody took its object away: nothing is written to one of the same name."""
        self._publisher.lose(job_id)

    def has_made(self, job_id: JobId, name: str, *, accepted: str) -> bool:
        """Whether this is what we made for a job."""
        return self._publisher.has_made(job_id, name, accepted=accepted)

    async def let_go(self, job_id: JobId, name: str) -> None:
        await self._publisher.let_go(job_id, name)

    # -- the pump -------------------------------------------------------------------------------

    def _hand_in(self, work: HandedIn) -> Future[None]:
        work.done.set_running_or_notify_cancel()
        if self._is_closed:
            raise StoreError(Trouble.CLOSED, "the store of the cluster has been closed")
        self._loop.call_soon_threadsafe(self._queue.put_nowait, work)
        return work.done

    async def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = await self._next_group()
            if group:
                await self._take(group)

    async def _next_group(self) -> tuple[list[HandedIn], bool]:
        """Whatever is there; at least one."""
        group: list[HandedIn] = []
        work = await self._queue.get()
        while work is not None:
            group.append(work)
            if self._queue.empty():
                return group, True
            work = self._queue.get_nowait()
        return group, False

    async def _take(self, group: Sequence[HandedIn]) -> None:
        works = self._without_the_lost(group)
        try:
            if any(work.resumes for work in works):
                await self._resources.check()
            refused = await self._publisher.publish([work.changes for work in works])
        except Exception as error:  # noqa: BLE001 - whoever waits gets an answer, whatever it is
            self._failure = _explained(error)
            for work in works:
                work.done.set_exception(self._failure)
        else:
            for work in works:
                if self._failure is not None:
                    work.done.set_exception(self._failure)
                elif error := refused.submits.get(work.submit) if work.submit else None:
                    self._refuse(work, error)
                else:
                    self._hand_on(work, unfenced=work.unfenced(refused.statuses))

    def _without_the_lost(self, group: Sequence[HandedIn]) -> Sequence[HandedIn]:
        """After a failure: what comes from the moment on at which writing goes on."""
        for place, work in enumerate(group):
            if self._failure is None or work.resumes:
                self._failure = None
                return group[place:]
            work.done.set_exception(self._failure)
        return ()

    def _refuse(self, work: HandedIn, error: NotKeptError) -> None:
        self._refused |= {each.job_id for each in work.changes.accepted}
        work.done.set_exception(error)

    def _hand_on(self, work: HandedIn, *, unfenced: UnfencedError | None) -> None:
        try:
            batch = work.batch.without(self._refused) if self._refused else work.batch
            over = (job for job in work.batch.effects.jobs.values() if isinstance(job.phase, Ended))
            self._refused.difference_update(job.id for job in over)
            local = self._local.resume() if work.resumes else self._local.write(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits gets an answer, whatever it is
            self._failure = _explained(error)
            work.done.set_exception(self._failure)
        else:
            work.follow(local, unfenced=unfenced)

    async def _tell_late(self) -> None:
        """For ever, beside what others rest upon."""
        while True:
            began_s, has_more = self._loop.time(), False
            try:
                with self._bugs.of():
                    has_more = self._failure is None and await self._publisher.publish_late()
            except UnavailableError as error:
                log.warning("statuses could not be brought up to date", error=str(error))
            rest_s = REST_FACTOR * (self._loop.time() - began_s)
            await asyncio.sleep(rest_s if has_more else LATE_S)

    async def _finish(self) -> None:
        self._is_closed = True
        self._queue.put_nowait(None)
        await self._pump
        self._aside.cancel()
        await asyncio.gather(self._aside, return_exceptions=True)

    # -- reading --------------------------------------------------------------------------------

    async def _gather(self, rows: Mapping[str, str]) -> list[Kept]:
        mark, ends = Settled(rows), ends_in(rows)
        read = [self._read(each, mark, ends=ends) for each in await self._resources.all()]
        self._spare(self._strange)
        found = [each for each in read if each is not None and each.job.id not in self._strange]
        counting, left = without_the_unaccepted(found)
        for each in left:
            log.info("a submit that was never accepted is removed", object=each.name)
            await self._resources.remove(each.name)
        return sorted(counting, key=lambda each: (each.job.submitted_s, each.job.id))

    def _read(self, found: Object, mark: Settled, *, ends: Container[JobId]) -> Kept | None:
        """What counts of an object. Of what does not, who watches them tells."""
        try:
            kept = kept_of(found, key=self._key)
        except StoreError as error:
            self._strange |= {id_of(found)}
            self._unread |= {id_of(found)} if is_bare(found) else set()
            log.error("a TrainingJob is set aside, and its pods left alone", error=str(error))
            return None
        if kept is None or kept.job.id in ends or not is_bare(found):
            return kept
        return None if mark.covers(kept.job.id) else kept

    async def _begin(
        self, kept: Sequence[Kept], behind: Sequence[JobId], *, rows: dict[str, str]
    ) -> None:
        self._refused.clear()
        self._publisher.settled = Settled(rows)
        self._publisher.settled.expect(self._unread)
        self._publisher.begin(kept, behind=behind)
        self._publisher.drains.begin(rows)
        there = self._strange | {each.job.id for each in kept}
        self._publisher.untold.begin(rows, there=there)

    def _from_outside(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(_as_store(work), self._loop).result()


async def _as_store(work: Any) -> Any:
    try:
        return await work
    except UnavailableError as error:
        raise _explained(error) from None


def _explained(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, UnavailableError):
        return StoreError(Trouble.IO, error.message, error.hint)
    log.error("a batch could not be published", exc_info=error)
    return StoreError(Trouble.REFUSED, f"{type(error).__name__}: {error}", "a bug; report it")
