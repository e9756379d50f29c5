"""TrainingJobs that people make, edit and delete with kubectl: the same wishes as at the desk.

An object that is new is a submit by the person whom it names; what is refused is told in a
condition and an event. Deleting one cancels its job, and it stays until the job is over. Edits
are heeded as far as a job can change; what cannot be had is told, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from rota.core.events import JobCancelled, JobEvent, JobResized
from rota.core.model import JobId
from rota.daemon import resizes
from rota.daemon.admission import Defaults, with_defaults
from rota.daemon.asked_by_object import asker_of, edits_of, request_of, wishes_of
from rota.daemon.desk import Desk
from rota.daemon.farewells import Farewells
from rota.daemon.intake import Arrival
from rota.daemon.people import Caller
from rota.daemon.programs import unpack
from rota.daemon.verdicts import Verdicts, generation_of, why_put_back
from rota.engines.kubernetes.api import ApiError, Change, Object
from rota.engines.kubernetes.refusals import BLOATED, is_bloated
from rota.engines.kubernetes.resources import Resources
from rota.errors import RotaError, StoreError, UnavailableError, UserError
from rota.store.cluster import ClusterStore
from rota.store.training_jobs import (
    ACCEPTED,
    FINALIZER,
    JOB,
    is_bare,
    is_sealed,
    kept_of,
    part,
)
from rota.tasks import Bugs
from rota.wire.jobs import JobRequest

log = structlog.get_logger()

ACTOR = "kubectl"
AT_ONCE = 8
PAUSE_S = 0.5
"""Before something is tried again that could not be done now."""
LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class Ground:
    """Where petitions are made: the key of what was accepted, and who asks if nobody is named."""

    key: bytes
    namespace: str
    defaults: Callable[[str], Defaults]


class Petitions:
    def __init__(
        self, desk: Desk, store: ClusterStore, *, resources: Resources, ground: Ground
    ) -> None:
        self._desk = desk
        self._store = store
        self._resources = resources
        self._ground = ground
        self._verdicts = Verdicts(resources, desk.clock)
        self._pending: dict[str, list[Change]] = {}
        """By name, those that are not heeded yet; an edit takes the place of an older one."""
        self._names: asyncio.Queue[str] = asyncio.Queue()
        self._jobs: dict[str, JobId] = {}
        """By the uid of their objects."""
        self._farewells = Farewells(desk.shell, store)
        self._bugs = Bugs("a TrainingJob was left alone")

    def hear(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        waiting = self._pending.get(name)
        if waiting is None:
            self._pending[name] = [change]
            self._names.put_nowait(name)
        elif waiting and "DELETED" not in (waiting[-1].type, change.type):
            waiting[-1] = change
        else:
            waiting.append(change)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())
            group.create_task(self._farewells.run())

    async def _work(self) -> None:
        """One name is never in two hands at once."""
        while True:
            name = await self._names.get()
            waiting = self._pending[name]
            while waiting:
                await self._heed_in_the_end(waiting.pop(0))
            del self._pending[name]

    async def _heed_in_the_end(self, change: Change) -> None:
        """One that we stumble over must not end it for all: the next daemon would come to it, too,
        and stumble."""
        said, is_old = "", False
        while True:
            try:
                with self._bugs.of(object=change.object["metadata"]["name"]):
                    await self._heed(await self._by_now(change) if is_old else change)
                return None
            except UnavailableError as error:
                is_old = True
                if isinstance(error, ApiError) and not error.is_passing:
                    return log.error("a TrainingJob was left alone", error=str(error))
                if said != str(error):
                    said = str(error)
                    log.info("a TrainingJob has to wait", error=said)
                await asyncio.sleep(PAUSE_S)
            except RotaError as error:
                return log.error("a TrainingJob was left alone", error=str(error))

    async def _by_now(self, change: Change) -> Change:
        """What failed may have been written all the same: then the object says so, and is not taken
        for a new one."""
        meta = change.object["metadata"]
        now = None if change.type == "DELETED" else await self._resources.get(meta["name"])
        if now is None or now["metadata"]["uid"] != meta["uid"]:
            return Change("DELETED", change.object)
        return Change("MODIFIED", now)

    async def _heed(self, change: Change) -> None:
        self._desk.shell.require_sound()
        found = change.object
        uid = found["metadata"]["uid"]
        if change.type == "DELETED":
            self._verdicts.forget(uid)
            await self._lose(uid)
            return
        try:
            job_id = await self._job_of(found)
        except StoreError as error:
            await self._verdicts.set_aside(found, str(error))
            return
        if job_id is None:
            await self._take_in(found)
        elif found["metadata"].get("deletionTimestamp"):
            await self._leave(job_id, found)
        elif is_bloated(found):
            await self._end_bloated(job_id, found)
        elif generation_of(found) > self._observed(job_id, found):
            await self._edit(job_id, found)

    async def _job_of(self, found: Object) -> JobId | None:
        """The job that an object stands for; None of one that is new to us."""
        meta = found["metadata"]
        if meta["uid"] not in self._jobs and (own := self._made_by_us(meta)):
            self._jobs[meta["uid"]] = own
        if meta["uid"] in self._jobs:
            return self._jobs[meta["uid"]]
        kept = kept_of(found, key=self._ground.key)
        if kept is None or (is_bare(found) and await self._is_put_back(kept.job.id, found)):
            return None
        self._jobs[meta["uid"]] = kept.job.id
        return kept.job.id

    def _made_by_us(self, meta: Object) -> JobId | None:
        """The job that an object stands for just as we made it, which most of them do: what we
        know need not be read. None: it has to be."""
        job_id = JobId(str(part(meta, "labels").get(JOB)))
        text = str(part(meta, "annotations").get(ACCEPTED) or "")
        return job_id if self._store.has_made(job_id, meta["name"], accepted=text) else None

    async def _is_put_back(self, job_id: JobId, found: Object) -> bool:
        """Whether somebody put back an object that we made, whose job is over or unknown. What was
        seen may be older than what we know: then the object by now says more."""
        if self._store.is_publishing(job_id):
            return False
        now = await self._resources.get(found["metadata"]["name"])
        return now is not None and is_bare(now)

    def _observed(self, job_id: JobId, found: Object) -> int:
        told = part(found, "status").get("observedGeneration") or 1
        return max(told, self._store.shown(job_id).observed)

    # -- new ones -------------------------------------------------------------------------------

    async def _take_in(self, found: Object) -> None:
        meta = found["metadata"]
        if meta.get("deletionTimestamp"):
            if FINALIZER in (meta.get("finalizers") or ()):
                await self._resources.let_go(meta["name"])
            return
        if self._verdicts.has_refused(found):
            return
        if is_sealed(found, key=self._ground.key):
            # It was accepted once, and is nobody's new wish.
            outcomes = self._desk.shell.kernel.outcomes
            await self._verdicts.refuse(found, why_put_back(meta, outcomes))
            return
        if is_bloated(found):
            await self._verdicts.refuse(found, BLOATED)
            return

        def claim(job_id: JobId) -> None:
            self._jobs[meta["uid"]] = job_id
            self._store.adopt(job_id, meta["name"])

        try:
            request = _named(request_of(found.get("spec")), meta["name"])
            arrival = Arrival(claim=claim)
            caller = Caller(asker_of(meta, default=self._ground.namespace))
            job_id = await self._desk.intake.take_in(caller, request, arrival=arrival)
        except UserError as error:
            self._jobs.pop(meta["uid"], None)
            await self._verdicts.refuse(found, str(error))
            return
        except BaseException:
            self._jobs.pop(meta["uid"], None)
            raise
        log.info("a TrainingJob is taken in", object=meta["name"], job_id=job_id)
        await self._edit(job_id, found)

    # -- those that go --------------------------------------------------------------------------

    async def _leave(self, job_id: JobId, found: Object) -> None:
        name = found["metadata"]["name"]
        if self._desk.shell.kernel.job(job_id) is None:
            await self._store.let_go(job_id, name)
        else:
            self._farewells.wait_for(job_id, name)
            await self._cancel(job_id)

    async def _lose(self, uid: str) -> None:
        if job_id := self._jobs.get(uid):
            self._store.lose(job_id)
            await self._cancel(job_id)
            del self._jobs[uid]

    async def _end_bloated(self, job_id: JobId, found: Object) -> None:
        """What cannot be written down must not run: the next daemon would know nothing of it."""
        if self._desk.shell.kernel.job(job_id) is not None:
            await self._cancel(job_id, BLOATED)
            await self._verdicts.announce(found, reason="Cancelled", words=BLOATED)

    async def _cancel(self, job_id: JobId, reason: str = "") -> None:
        if self._desk.shell.kernel.job(job_id) is not None:
            await self._tell(JobCancelled(job_id, ACTOR, reason))

    # -- edits ----------------------------------------------------------------------------------

    async def _edit(self, job_id: JobId, found: Object) -> None:
        job, submission = self._desk.shell.kernel.job(job_id), self._store.submission(job_id)
        if job is None or submission is None:
            return
        refusals: list[tuple[str, str]] = []
        try:
            accepted = unpack(submission.program).request
            asked = with_defaults(
                _named(request_of(found["spec"]), found["metadata"]["name"]),
                user=submission.user,
                defaults=self._ground.defaults(accepted.project),
            )
            edits = edits_of(found["spec"], job, accepted=accepted, asked=asked)
            if edits.refused:
                what = f"{', '.join(edits.refused)} cannot be changed once a job is accepted"
                refusals.append(("Immutable", f"{what}; delete it and make it anew"))
            for event in wishes_of(edits, job, actor=ACTOR):
                await self._tell(event)
            if edits.workers is not None:
                resizes.check(job, edits.workers)
                await self._tell(JobResized(job_id, edits.workers, ACTOR))
        except UserError as error:
            refusals.append(("Refused", str(error)))
        await self._say_what_is_refused(job_id, found, refusals=refusals)

    async def _say_what_is_refused(
        self, job_id: JobId, found: Object, *, refusals: list[tuple[str, str]]
    ) -> None:
        """In one condition: the cluster takes no second one of a kind."""
        words = "; ".join(each for _, each in refusals)
        notes = (("SpecApplied", refusals[0][0], words),) if refusals else ()
        shown = self._store.shown(job_id)
        self._store.show(job_id, replace(shown, observed=generation_of(found), notes=notes))
        if notes and notes != shown.notes:
            await self._verdicts.announce(found, reason=refusals[0][0], words=words)

    async def _tell(self, event: JobEvent) -> None:
        shell = self._desk.shell
        await shell.durable(shell.tell(event, actor=ACTOR))


def _named(request: JobRequest, name: str) -> JobRequest:
    return request if request.name else replace(request, name=name[:LONGEST_NAME])
