"""Keeps the cluster's objects of jobs in step with the jobs: first what others rest upon, at once;
then, now and then, what is only good to know."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rota.core.model import Ended, Job, JobId
from rota.errors import NotKeptError
from rota.store.base import Batch
from rota.store.changes import Accepted, Changes, Refused, accepted_of, shared_rows
from rota.store.drains import Drains
from rota.store.fences import essence
from rota.store.resources import Resources
from rota.store.settled import Settled
from rota.store.training_jobs import (
    NOTHING_SHOWN,
    Kept,
    Object,
    Shown,
    body_of,
    status_of,
)
from rota.store.turns import Turns, all_of
from rota.store.untold import Untold, end_of
from rota.tasks import Bugs

LATE_AT_ONCE = 4
SETTLE_S = 3.0
"""That further jobs have a status is told no more often, however many there are."""
AGAIN_S = 60.0
"""How often the end of a job is offered again to an object that was not allowed to take it."""
NEW_AT_ONCE = 32
"""More of a submit are not asked for before it is known that the others were not refused."""

TellOne = Callable[[JobId, dict[JobId, NotKeptError]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An object of ours."""

    name: str
    accepted: str
    batch: str
    has_status: bool = False


class Publisher:
    def __init__(self, resources: Resources, *, key: bytes) -> None:
        self._resources = resources
        self._key = key
        self._jobs: dict[JobId, Job] = {}
        """As they were handed in last."""
        self._entries: dict[JobId, _Entry] = {}
        self._adopted: dict[JobId, str] = {}
        self._shown: dict[JobId, Shown] = {}
        self._late: dict[JobId, None] = {}
        self.drains, self.settled, self.untold = Drains(), Settled(), Untold()
        self._settled_s = self._again_s = -math.inf
        self._complaints: dict[JobId, str] = {}
        """Why the newest status of these was refused."""
        self._turns = Turns()
        self._room = asyncio.Semaphore(NEW_AT_ONCE)
        self._bugs = Bugs("the status of a job could not be told")

    def begin(self, kept: Iterable[Kept], *, behind: Collection[JobId] = ()) -> None:
        """Go on from what the cluster keeps. Of those `behind` we know more than their objects:
        even that they are over."""
        found = list(kept)
        live = [
            each for each in found if not isinstance(each.job.phase, Ended) or each.job.id in behind
        ]
        self._jobs = {each.job.id: each.job for each in live}
        self._entries = {
            each.job.id: _Entry(each.name, each.accepted, each.batch, each.has_status)
            for each in live
        }
        self._shown = {each: shown for each, shown in self._shown.items() if each in self._jobs}
        bare = {each.job.id for each in found if not each.has_status}
        self._late = dict.fromkeys((self._late.keys() | set(behind) | bare) & self._jobs.keys())
        self.settled.expect(bare)
        for each in found:
            if each.has_status:
                self.settled.settle(each.job.id)

    def adopt(self, job_id: JobId, name: str) -> None:
        """The job that will be submitted under this id has an object already."""
        self._adopted[job_id] = name

    def show(self, job_id: JobId, shown: Shown) -> None:
        if job_id in self._jobs and self._shown.get(job_id, NOTHING_SHOWN) != shown:
            self._shown[job_id] = shown
            self._late[job_id] = None

    def shown(self, job_id: JobId) -> Shown:
        return self._shown.get(job_id, NOTHING_SHOWN)

    def name_of(self, job_id: JobId) -> str:
        return self._entries[job_id].name if job_id in self._entries else ""

    def has_made(self, job_id: JobId, name: str, *, accepted: str) -> bool:
        entry = self._entries.get(job_id)
        return entry is not None and (entry.name, entry.accepted) == (name, accepted)

    def lose(self, job_id: JobId) -> None:
        """Its object is gone. Another of that name is somebody else's."""
        self._entries.pop(job_id, None)
        self.untold.forget(job_id)
        if (job := self._jobs.get(job_id)) and isinstance(job.phase, Ended):
            self._forget(job_id)

    def knows(self, job_id: JobId) -> bool:
        return job_id in self._entries or job_id in self._jobs

    def look(self, batch: Batch) -> Changes:
        """What a batch means for the objects."""
        jobs = batch.effects.jobs
        accepted = tuple(accepted_of(batch))
        new = {each.job_id for each in accepted}
        urgent = [job for job in jobs.values() if job.id not in new and self._is_urgent(job)]
        self._jobs.update(jobs)
        self._late.update(dict.fromkeys(jobs))
        self.settled.expect(new)
        for job_id in (*new, *(job.id for job in urgent)):
            del self._late[job_id]
        rows = shared_rows(batch) | self.drains.look(batch.effects.nodes)
        return Changes(accepted, tuple(urgent), rows)

    async def publish(self, changes: Sequence[Changes]) -> Refused:
        """Returns when all of it is at the API server, but for what it refuses."""
        new = [each for change in changes for each in change.accepted]
        refused: dict[JobId, NotKeptError] = {}
        # The first of a submit comes last: with it, and not before, all of them count.
        await all_of(self._try(each, refused) for each in new if each.job_id != each.batch)
        await all_of(self._try(each, refused) for each in new if each.job_id == each.batch)
        # A clock that went back gives ids that are no longer taken at their word.
        early = [each for each in new if self.settled.covers(each.job_id)]
        await all_of(self._try(each, refused, is_made=True) for each in early)
        await all_of(self._take_back(each.job_id) for each in new if each.batch in refused)
        rows = {name: text for change in changes for name, text in change.rows.items()}
        if rows:
            await self._resources.keep(rows)
        changed = dict.fromkeys(job.id for change in changes for job in change.jobs)
        return Refused(refused, await self._tell(changed, self._tell_one))

    async def publish_late(self) -> bool:
        """Some of what can wait. Returns whether there is more."""
        await self._resources.lull()
        some = list(islice(self._late, LATE_AT_ONCE))
        for job_id in some:
            del self._late[job_id]
        try:
            await self._tell(some, self._tell_one_late)
        except BaseException:
            # What stands in the way of one of them is not to keep the others waiting.
            self._late = dict.fromkeys([*self._late, *some])
            raise
        now = asyncio.get_running_loop().time()
        if now - self._settled_s >= SETTLE_S:
            await self._tell_what_is_settled(now)
        if now - self._again_s >= AGAIN_S:
            self._again_s = now
            self._late.update(dict.fromkeys(self.untold.jobs & self._jobs.keys()))
        return bool(self._late)

    async def _tell_what_is_settled(self, now: float) -> None:
        settled, stale = self.settled.due(), self.untold.due()
        if settled or stale:
            self._settled_s = now
            await self._resources.keep({**settled, **stale})
            self.settled.told(settled)
            self.untold.told(stale)

    async def _tell(self, job_ids: Iterable[JobId], tell: TellOne) -> dict[JobId, NotKeptError]:
        """What is newest of these jobs. Returns those whose status is refused: if they are over,
        that is kept elsewhere by then."""
        refused: dict[JobId, NotKeptError] = {}
        await all_of(tell(each, refused) for each in job_ids)
        jobs = [self._jobs[each] for each in refused if each in self._jobs]
        rows = self.untold.look(jobs)
        if rows:
            await self._resources.keep(rows)
            self.untold.told(rows)
        for job in jobs:
            if isinstance(job.phase, Ended):
                self.settled.settle(job.id)
        return refused

    async def _tell_one(self, job_id: JobId, refused: dict[JobId, NotKeptError]) -> None:
        try:
            await self._update(job_id)
        except NotKeptError as error:
            refused[job_id] = error
            entry, words = self._entries.get(job_id), str(error)
            if entry is not None and self._complaints.get(job_id) != words:
                self._complaints[job_id] = words
                await self._resources.complain(entry.name, words)

    async def _tell_one_late(self, job_id: JobId, refused: dict[JobId, NotKeptError]) -> None:
        """A bug with one must not keep the others waiting: it is told again when it changes."""
        with self._bugs.of(job=job_id):
            await self._tell_one(job_id, refused)

    async def let_go(self, job_id: JobId, name: str) -> None:
        """Of an object whose job is over. With it goes the proof that its submit was accepted, so
        that the others of that submit have to have a status of their own by then."""
        others = [
            each
            for each, entry in self._entries.items()
            if not entry.has_status and entry.batch == job_id and each in self._jobs
        ]
        refused = await self._tell(others, self._tell_one)
        for each in refused.keys() & self._jobs.keys():
            if end_of(self._jobs[each]) is None:
                raise refused[each]
        await self._resources.let_go(name)

    async def _try(
        self, new: Accepted, refused: dict[JobId, NotKeptError], *, is_made: bool = False
    ) -> None:
        async with self._room:
            if new.batch in refused:
                self._adopted.pop(new.job_id, None)
                return
            try:
                await (self._update(new.job_id) if is_made else self._make(new))
            except NotKeptError as error:
                refused[new.batch] = error

    async def _take_back(self, job_id: JobId) -> None:
        """What was made of a submit that was refused in the end."""
        entry = self._entries.pop(job_id, None)
        if entry is not None:
            await self._resources.remove(entry.name)

    async def _make(self, new: Accepted) -> None:
        if new.job_id in self._adopted:
            await self._take_over(new, name=self._adopted.pop(new.job_id))
            return
        name, n_taken = str(new.job_id), 0
        while not await self._resources.create(self._body(new, name)):
            n_taken += 1
            name = f"{new.job_id}-{n_taken}"
        self._entries[new.job_id] = _Entry(name, new.text, new.batch)
        self._late[new.job_id] = None

    def _body(self, new: Accepted, name: str) -> Object:
        return body_of(name, new.job_id, accepted=new.text, key=self._key)

    async def _take_over(self, new: Accepted, *, name: str) -> None:
        if await self._resources.adopt(name, new.job_id):
            self._entries[new.job_id] = _Entry(name, new.text, new.batch)
            try:
                await self._update(new.job_id)
            except NotKeptError:
                # It is not ours to remove.
                del self._entries[new.job_id]
                await self._resources.let_go(name)
                raise

    async def _update(self, job_id: JobId) -> None:
        """What is newest of a job, by one at a time: an older status never comes last."""
        async with self._turns.of(job_id):
            await self._write(job_id)

    async def _write(self, job_id: JobId) -> None:
        entry, job = self._entries.get(job_id), self._jobs.get(job_id)
        if entry is None or job is None:
            # Somebody took its object away by force, and who watches them hears of it; or it was
            # refused.
            if job is not None and isinstance(job.phase, Ended):
                self._forget(job_id)
            return
        self._late.pop(job_id, None)
        status = status_of(job, self.shown(job.id), accepted=entry.accepted)
        is_there = await self._resources.update(entry.name, status)
        self._complaints.pop(job_id, None)
        if not is_there or isinstance(job.phase, Ended):
            self._forget(job.id)
        elif not entry.has_status:
            self._entries[job.id] = replace(entry, has_status=True)
            self.settled.settle(job_id)

    def _forget(self, job_id: JobId) -> None:
        self._entries.pop(job_id, None)
        self._shown.pop(job_id, None)
        self._jobs.pop(job_id, None)
        self._complaints.pop(job_id, None)
        self.settled.settle(job_id)
        self.untold.forget(job_id)

    def _is_urgent(self, job: Job) -> bool:
        before = self._jobs.get(job.id)
        return before is None or essence(before) != essence(job)
