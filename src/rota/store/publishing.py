"""Keeps the cluster's objects of jobs in step with the jobs: first what others rest upon, at once;
then, now and then, what is only good to know."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from rota.core.model import Ended, Job, JobId
from rota.store.base import Batch
from rota.store.codec import encode
from rota.store.drains import Drains
from rota.store.fences import essence, is_first_start
from rota.store.records import Project, Row, Token, User, key_of
from rota.store.training_jobs import (
    NOTHING_SHOWN,
    Kept,
    Object,
    Shown,
    accepted_text,
    body_of,
    has_pod,
    status_of,
)

LATE_AT_ONCE = 4
SHARED = (Token, User, Project)
"""Rows that every replica has to know. The others are history, which may lag."""


class Resources(Protocol):
    """The objects at an API server. What cannot be done now is an `UnavailableError`."""

    async def check(self) -> None:
        """Raises while nothing could be kept there."""
        ...

    async def all(self) -> list[Object]: ...

    async def create(self, body: Object) -> bool:
        """Made, now or when the same was asked before. False: the name is somebody else's."""
        ...

    async def adopt(self, name: str, job_id: JobId) -> bool:
        """Hold an object that somebody else made until we let go. False: it is gone."""
        ...

    async def update(self, name: str, status: Object) -> bool:
        """Unless somebody who came after us wrote it. False: it is gone."""
        ...

    async def lull(self) -> None:
        """Until nothing more urgent waits to be written, or for a while."""
        ...

    async def let_go(self, name: str) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def rows(self) -> dict[str, str]:
        """What was kept besides jobs, by name."""
        ...

    async def keep(self, rows: dict[str, str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """A new job, and the first of those that came with it."""

    job_id: JobId
    text: str
    batch: JobId
    has_pod: bool
    """Whether it stands for a pod that somebody made themselves."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a batch has to be at the API server before it counts."""

    accepted: tuple[Accepted, ...] = ()
    jobs: tuple[Job, ...] = ()
    rows: Mapping[str, str] = field(default_factory=dict[str, str])
    """By their names there."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An object of ours. `accepted` is what its status does not say yet."""

    name: str
    accepted: str
    batch: str


class Publisher:
    def __init__(self, resources: Resources, *, key: bytes) -> None:
        self._resources = resources
        self._key = key
        self._jobs: dict[JobId, Job] = {}
        """As they were handed in last."""
        self._entries: dict[JobId, _Entry] = {}
        self._adopted: dict[JobId, str] = {}
        self._fresh: set[JobId] = set()
        """Those that we accepted ourselves, and that have no status yet: nobody who commanded
        before us can have sent off a worker of theirs."""
        self._shown: dict[JobId, Shown] = {}
        self._late: dict[JobId, None] = {}
        self.drains = Drains()
        self._writing: dict[JobId, asyncio.Future[None]] = {}

    def begin(self, kept: Iterable[Kept], *, behind: Collection[JobId] = ()) -> None:
        """Go on from what the cluster keeps. Of those `behind` we know more than their objects."""
        live = [each for each in kept if not isinstance(each.job.phase, Ended)]
        self._fresh = set()
        self._jobs = {each.job.id: each.job for each in live}
        self._entries = {
            each.job.id: _Entry(each.name, "" if each.has_status else each.accepted, each.batch)
            for each in live
        }
        self._shown = {each: shown for each, shown in self._shown.items() if each in self._jobs}
        self._late = dict.fromkeys((self._late.keys() | set(behind)) & self._jobs.keys())

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
        return (
            entry is not None
            and bool(accepted)
            and (entry.name, entry.accepted) == (name, accepted)
        )

    def knows(self, job_id: JobId) -> bool:
        return job_id in self._entries or job_id in self._jobs

    def look(self, batch: Batch) -> Changes:
        """What a batch means for the objects."""
        jobs = batch.effects.jobs
        accepted = tuple(_accepted(batch))
        new = {each.job_id for each in accepted}
        self._fresh |= {each.job_id for each in accepted if not each.has_pod}
        self._fresh -= self._adopted.keys()
        urgent = [job for job in jobs.values() if job.id not in new and self._is_urgent(job)]
        self._jobs.update(jobs)
        self._late.update(dict.fromkeys(jobs))
        for job_id in (*new, *(job.id for job in urgent)):
            del self._late[job_id]
        rows = {row_name(row): encode(row) for row in batch.rows if isinstance(row, SHARED)}
        return Changes(accepted, tuple(urgent), rows | self.drains.look(batch.effects.nodes))

    async def publish(self, changes: Sequence[Changes]) -> None:
        """Returns when all of it is at the API server."""
        new = [each for change in changes for each in change.accepted]
        # The first of a submit comes last: with it, and not before, all of them count.
        await _all(self._make(each) for each in new if each.job_id != each.batch)
        await _all(self._make(each) for each in new if each.job_id == each.batch)
        rows = {name: text for change in changes for name, text in change.rows.items()}
        if rows:
            await self._resources.keep(rows)
        changed = dict.fromkeys(job.id for change in changes for job in change.jobs)
        await _all(map(self._update, changed))

    async def publish_late(self) -> bool:
        """Some of what can wait. Returns whether there is more."""
        await self._resources.lull()
        some = list(islice(self._late, LATE_AT_ONCE))
        for job_id in some:
            del self._late[job_id]
        try:
            await _all(map(self._update, some))
        except BaseException:
            self._late = dict.fromkeys([*some, *self._late])
            raise
        return bool(self._late)

    async def let_go(self, job_id: JobId, name: str) -> None:
        """Of an object whose job is over. With it goes the proof that its submit was accepted, so
        that the others of that submit have to have a status of their own by then."""
        others = [
            each
            for each, entry in self._entries.items()
            if entry.accepted and entry.batch == job_id and each in self._jobs
        ]
        await _all(map(self._update, others))
        await self._resources.let_go(name)

    async def _make(self, new: Accepted) -> None:
        if new.job_id in self._adopted:
            await self._take_over(new, name=self._adopted.pop(new.job_id))
            return
        name, n_taken = str(new.job_id), 0
        while not await self._resources.create(self._body(new, name)):
            n_taken += 1
            name = f"{new.job_id}-{n_taken}"
        self._entries[new.job_id] = _Entry(name, new.text, new.batch)

    def _body(self, new: Accepted, name: str) -> Object:
        return body_of(name, new.job_id, accepted=new.text, key=self._key)

    async def _take_over(self, new: Accepted, *, name: str) -> None:
        if await self._resources.adopt(name, new.job_id):
            self._entries[new.job_id] = _Entry(name, new.text, new.batch)
            await self._update(new.job_id)

    async def _update(self, job_id: JobId) -> None:
        """What is newest of a job, by one at a time: an older status never comes last."""
        while before := self._writing.get(job_id):
            await asyncio.wait((before,))
        self._writing[job_id] = done = asyncio.get_running_loop().create_future()
        try:
            await self._write(job_id)
        finally:
            del self._writing[job_id]
            done.set_result(None)

    async def _write(self, job_id: JobId) -> None:
        entry, job = self._entries.get(job_id), self._jobs.get(job_id)
        if entry is None or job is None:
            # Somebody took its object away by force; who watches them hears of it.
            return
        status = status_of(job, self.shown(job.id))
        if entry.accepted:
            status["accepted"] = entry.accepted
        is_there = await self._resources.update(entry.name, status)
        self._fresh.discard(job.id)
        if not is_there or isinstance(job.phase, Ended):
            self._forget(job.id)
        elif entry.accepted:
            self._entries[job.id] = replace(entry, accepted="")

    def _forget(self, job_id: JobId) -> None:
        self._entries.pop(job_id, None)
        self._fresh.discard(job_id)
        self._shown.pop(job_id, None)
        self._jobs.pop(job_id, None)

    def _is_urgent(self, job: Job) -> bool:
        before = self._jobs.get(job.id)
        if before is None:
            return True
        if job.id in self._fresh and is_first_start(before, job):
            return False
        return essence(before) != essence(job)


def _accepted(batch: Batch) -> Iterable[Accepted]:
    for each in batch.submissions:
        first = batch.submissions[0].job_id
        text = accepted_text(batch.effects.jobs[each.job_id], each, batch=first)
        yield Accepted(each.job_id, text, first, has_pod(each))


async def _all(works: Iterable[Awaitable[object]]) -> None:
    """Waits for every one of them, whatever becomes of the others; then fails if one did."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def row_name(row: Row) -> str:
    """A name that a cluster takes, whatever the row is called."""
    known_by = hashlib.sha256("\n".join(key_of(row)).encode()).hexdigest()
    return f"{type(row).__name__.lower()}.{known_by[:32]}"
