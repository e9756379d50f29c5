"""Writes jobs to their TrainingJob objects.

Changes of fence fields are written at once, before the batch is acknowledged. Other changes, such
as progress, are deferred: they are written in the background, a few at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice

import structlog

from rota.core.model.job import Ended, Job, JobId
from rota.errors import UnavailableError, WriteRejectedError
from rota.kube.errors import NotStoredYetError
from rota.store.interface import Batch
from rota.store.kubernetes.api_port import TrainingJobPort
from rota.store.kubernetes.changes import (
    AcceptedJob,
    Changes,
    RejectedWrites,
    accepted_of,
    shared_rows,
)
from rota.store.kubernetes.crd_codec import (
    NO_STATUS_DETAILS,
    Object,
    StatusDetails,
    StoredTrainingJob,
    body_of,
    status_of,
)
from rota.store.kubernetes.drains import Drains
from rota.store.kubernetes.fence_fields import fence_fields
from rota.store.kubernetes.rejected_endings import RejectedEndings, job_ending
from rota.store.kubernetes.status_watermark import StatusWatermark
from rota.tasks import ErrorIsolation

log = structlog.get_logger()

DEFERRED_BATCH_SIZE = 4
WATERMARK_INTERVAL_S = 3.0
"""Least time between two writes of the watermark, whatever the number of new jobs."""
ENDING_RETRY_S = 60.0
"""How often the end of a job is written again to an object that rejected it."""
MAX_PARALLEL_CREATES = 32
"""Limits wasted creates: a rejected submit of many jobs stops at its first rejected object."""
WriteOneStatus = Callable[[JobId, dict[JobId, WriteRejectedError]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _ManagedObject:
    """An object that belongs to a job of this store."""

    name: str
    accepted: str
    batch: str
    has_status: bool = False


class StatusWriter:
    """Knows the newest state of each live job, and writes it to the job's object."""

    def __init__(self, api: TrainingJobPort, *, key: bytes) -> None:
        self._api = api
        self._key = key
        self._jobs: dict[JobId, Job] = {}
        """The newest state of each job."""
        self._objects: dict[JobId, _ManagedObject] = {}
        self._adopted: dict[JobId, str] = {}
        """Names of users' objects, for jobs that are not submitted yet."""
        self._details: dict[JobId, StatusDetails] = {}
        self._deferred: dict[JobId, None] = {}
        """Jobs whose status needs a deferred update, oldest first."""
        self.drains = Drains()
        self.watermark = StatusWatermark()
        self.rejected_endings = RejectedEndings()
        self._watermark_written_s = self._endings_retried_s = -math.inf
        self._rejection_reasons: dict[JobId, str] = {}
        """Why the newest status of these jobs was rejected."""
        self._job_lock = PerJobLock()
        self._create_slots = asyncio.Semaphore(MAX_PARALLEL_CREATES)
        self._isolation = ErrorIsolation("status update failed")

    def restore(
        self,
        stored: Iterable[StoredTrainingJob],
        rows: Mapping[str, str],
        *,
        outdated: Collection[JobId] = (),
        unreadable: Collection[JobId] = (),
    ) -> None:
        """Start from the stored jobs and the shared rows. Write the status of `outdated` objects
        again, even if the job has ended. The watermark stays below `unreadable` objects."""
        found = list(stored)
        self.watermark = StatusWatermark(rows)
        self.watermark.expect(unreadable)
        live = [
            each
            for each in found
            if not isinstance(each.job.phase, Ended) or each.job.id in outdated
        ]
        self._jobs = {each.job.id: each.job for each in live}
        self._objects = {
            each.job.id: _ManagedObject(each.name, each.accepted, each.batch, each.has_status)
            for each in live
        }
        self._details = {
            each: details for each, details in self._details.items() if each in self._jobs
        }
        bare = {each.job.id for each in found if not each.has_status}
        deferred = self._deferred.keys() | set(outdated) | bare
        self._deferred = dict.fromkeys(deferred & self._jobs.keys())
        self.watermark.expect(bare)
        for each in found:
            if each.has_status:
                self.watermark.settle(each.job.id)

    def adopt(self, job_id: JobId, name: str) -> None:
        """Use an existing object for the job that will be submitted with this id."""
        self._adopted[job_id] = name

    def set_details(self, job_id: JobId, details: StatusDetails) -> None:
        if job_id in self._jobs and self.details(job_id) != details:
            self._details[job_id] = details
            self._deferred[job_id] = None

    def details(self, job_id: JobId) -> StatusDetails:
        return self._details.get(job_id, NO_STATUS_DETAILS)

    def object_name(self, job_id: JobId) -> str:
        return self._objects[job_id].name if job_id in self._objects else ""

    def is_own_object(self, job_id: JobId, name: str, *, accepted: str) -> bool:
        found = self._objects.get(job_id)
        return found is not None and (found.name, found.accepted) == (name, accepted)

    def forget_object(self, job_id: JobId) -> None:
        """The object of the job was deleted. A new object with its name belongs to another user."""
        self._objects.pop(job_id, None)
        self.rejected_endings.forget(job_id)
        if (job := self._jobs.get(job_id)) and isinstance(job.phase, Ended):
            self._forget_job(job_id)

    def is_known(self, job_id: JobId) -> bool:
        return job_id in self._objects or job_id in self._jobs

    def changes_of(self, batch: Batch) -> Changes:
        """Record the jobs of a batch. Return the writes that must precede its acknowledgement."""
        jobs = batch.effects.jobs
        accepted = tuple(accepted_of(batch))
        new = {each.job_id for each in accepted}
        urgent = [job for job in jobs.values() if job.id not in new and self._is_urgent(job)]
        self._jobs.update(jobs)
        self._deferred.update(dict.fromkeys(jobs))
        self.watermark.expect(new)
        for job_id in (*new, *(job.id for job in urgent)):
            del self._deferred[job_id]
        rows = shared_rows(batch) | self.drains.changed_rows(batch.effects.nodes)
        return Changes(accepted, tuple(urgent), rows)

    async def publish(self, changes: Sequence[Changes]) -> RejectedWrites:
        """Return when all changes are at the API server, except those that it rejects."""
        new = [each for change in changes for each in change.accepted]
        rejected: dict[JobId, WriteRejectedError] = {}
        # The first job of a submit is created last: its object makes the whole submit count.
        await gather_all(self._try(each, rejected) for each in new if each.job_id != each.batch)
        await gather_all(self._try(each, rejected) for each in new if each.job_id == each.batch)
        # After the clock went back, new ids may be below the watermark. Such an object is valid
        # only with a status.
        early = [each for each in new if self.watermark.covers(each.job_id)]
        await gather_all(self._try(each, rejected, is_created=True) for each in early)
        await gather_all(
            self._delete_rejected(each.job_id) for each in new if each.batch in rejected
        )
        rows = {name: text for change in changes for name, text in change.rows.items()}
        if rows:
            await self._api.put_rows(rows)
        changed = dict.fromkeys(job.id for change in changes for job in change.jobs)
        return RejectedWrites(rejected, await self._write_statuses(changed, self._write_status_of))

    async def publish_deferred(self) -> bool:
        """Write some deferred statuses. Return whether more are waiting."""
        await self._api.wait_idle()
        some = list(islice(self._deferred, DEFERRED_BATCH_SIZE))
        for job_id in some:
            del self._deferred[job_id]
        try:
            await self._write_statuses(some, self._write_deferred_status)
        except BaseException:
            # Retry these last, so that a failing job does not block the other jobs.
            self._deferred = dict.fromkeys([*self._deferred, *some])
            raise
        now = asyncio.get_running_loop().time()
        if now - self._watermark_written_s >= WATERMARK_INTERVAL_S:
            await self._write_watermark(now)
        if now - self._endings_retried_s >= ENDING_RETRY_S:
            self._endings_retried_s = now
            self._deferred.update(dict.fromkeys(self.rejected_endings.jobs & self._jobs.keys()))
        return bool(self._deferred)

    async def remove_finalizer(self, job_id: JobId, name: str) -> None:
        """Release the object of an ended job.

        The object of the first job proves that its submit was accepted. So the other jobs of the
        submit must have a status before this object disappears.
        """
        others = [
            each
            for each, managed in self._objects.items()
            if not managed.has_status and managed.batch == job_id and each in self._jobs
        ]
        rejected = await self._write_statuses(others, self._write_status_of)
        for each in rejected.keys() & self._jobs.keys():
            if job_ending(self._jobs[each]) is None:
                raise rejected[each]
        await self._api.remove_finalizer(name)

    # -- creating objects -----------------------------------------------------------------------

    async def _try(
        self,
        new: AcceptedJob,
        rejected: dict[JobId, WriteRejectedError],
        *,
        is_created: bool = False,
    ) -> None:
        """Create the object of a job, or update its status, unless its submit is rejected."""
        async with self._create_slots:
            if new.batch in rejected:
                self._adopted.pop(new.job_id, None)
                return
            try:
                await (self._update(new.job_id) if is_created else self._create(new))
            except WriteRejectedError as error:
                rejected[new.batch] = error

    async def _create(self, new: AcceptedJob) -> None:
        if new.job_id in self._adopted:
            await self._adopt_object(new, name=self._adopted.pop(new.job_id))
            return
        name, n_taken = str(new.job_id), 0
        while not await self._api.create(self._body(new, name)):
            n_taken += 1
            name = f"{new.job_id}-{n_taken}"
        self._objects[new.job_id] = _ManagedObject(name, new.text, new.batch)
        self._deferred[new.job_id] = None

    def _body(self, new: AcceptedJob, name: str) -> Object:
        return body_of(name, new.job_id, accepted=new.text, key=self._key)

    async def _adopt_object(self, new: AcceptedJob, *, name: str) -> None:
        if await self._api.adopt(name, new.job_id):
            self._objects[new.job_id] = _ManagedObject(name, new.text, new.batch)
            try:
                await self._update(new.job_id)
            except WriteRejectedError:
                # The object belongs to a user: release it instead of deleting it.
                del self._objects[new.job_id]
                await self._api.remove_finalizer(name)
                raise

    async def _delete_rejected(self, job_id: JobId) -> None:
        """Delete an object that was created before its submit was rejected."""
        managed = self._objects.pop(job_id, None)
        if managed is not None:
            await self._api.remove(managed.name)

    # -- writing statuses -----------------------------------------------------------------------

    async def _write_statuses(
        self, job_ids: Iterable[JobId], write_one: WriteOneStatus
    ) -> dict[JobId, WriteRejectedError]:
        """Write the newest status of these jobs, and return the rejected ones.

        The end of a job with a rejected status is in a shared row when this method returns.
        """
        rejected: dict[JobId, WriteRejectedError] = {}
        await gather_all(write_one(each, rejected) for each in job_ids)
        jobs = [self._jobs[each] for each in rejected if each in self._jobs]
        rows = self.rejected_endings.missing_rows(jobs)
        if rows:
            await self._api.put_rows(rows)
            self.rejected_endings.acknowledge(rows)
        for job in jobs:
            if job_ending(job) is not None and not self.rejected_endings.has(job.id):
                await self._remove_unstorable(job.id)
            if isinstance(job.phase, Ended):
                self.watermark.settle(job.id)
        return rejected

    async def _remove_unstorable(self, job_id: JobId) -> None:
        """Delete the object of a job whose end can be stored nowhere in the cluster. Otherwise a
        later daemon would run the job again."""
        if managed := self._objects.get(job_id):
            log.error("object deleted: the cluster stores no end of its job", object=managed.name)
            await self._api.remove(managed.name)
            self.forget_object(job_id)

    async def _write_status_of(
        self, job_id: JobId, rejected: dict[JobId, WriteRejectedError]
    ) -> None:
        try:
            await self._update(job_id)
        except WriteRejectedError as error:
            job = self._jobs.get(job_id)
            is_ending = job is not None and job_ending(job) is not None
            if isinstance(error, NotStoredYetError) and not is_ending:
                # Wait for the webhook: a rejected start would cancel the job.
                raise UnavailableError(error.message, error.hint) from None
            rejected[job_id] = error
            managed, reason = self._objects.get(job_id), str(error)
            if managed is not None and self._rejection_reasons.get(job_id) != reason:
                self._rejection_reasons[job_id] = reason
                await self._api.report_refusal(managed.name, reason)

    async def _write_deferred_status(
        self, job_id: JobId, rejected: dict[JobId, WriteRejectedError]
    ) -> None:
        """Isolate a bug with one job from the others. The next change of the job tries again."""
        with self._isolation.of(job=job_id):
            await self._write_status_of(job_id, rejected)

    async def _update(self, job_id: JobId) -> None:
        """Write the newest status of a job. Writes of one job never overlap, so that an older
        status cannot overwrite a newer one."""
        async with self._job_lock.of(job_id):
            await self._write(job_id)

    async def _write(self, job_id: JobId) -> None:
        managed, job = self._objects.get(job_id), self._jobs.get(job_id)
        if managed is None or job is None:
            # The object was deleted by force, which its controller handles; or it was rejected.
            if job is not None and isinstance(job.phase, Ended):
                self._forget_job(job_id)
            return
        self._deferred.pop(job_id, None)
        status = status_of(job, self.details(job.id), accepted=managed.accepted)
        exists = await self._api.update(managed.name, status)
        self._rejection_reasons.pop(job_id, None)
        if not exists or isinstance(job.phase, Ended):
            self._forget_job(job.id)
        elif not managed.has_status:
            self._objects[job.id] = replace(managed, has_status=True)
            self.watermark.settle(job_id)

    async def _write_watermark(self, now: float) -> None:
        """Write the watermark, and delete the stale rows of rejected ends."""
        watermark, stale = self.watermark.next_row(), self.rejected_endings.stale_rows()
        if watermark or stale:
            self._watermark_written_s = now
            await self._api.put_rows({**watermark, **stale})
            self.watermark.acknowledge(watermark)
            self.rejected_endings.acknowledge(stale)

    def _forget_job(self, job_id: JobId) -> None:
        self._objects.pop(job_id, None)
        self._details.pop(job_id, None)
        self._jobs.pop(job_id, None)
        self._rejection_reasons.pop(job_id, None)
        self.watermark.settle(job_id)
        self.rejected_endings.forget(job_id)

    def _is_urgent(self, job: Job) -> bool:
        before = self._jobs.get(job.id)
        return before is None or fence_fields(before) != fence_fields(job)


async def gather_all(works: Iterable[Awaitable[object]]) -> None:
    """Wait for all awaitables, then raise the first error, if any."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


class PerJobLock:
    """A lock per job. Uses memory only for jobs that are locked now."""

    def __init__(self) -> None:
        self._busy: dict[JobId, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def of(self, job_id: JobId) -> AsyncGenerator[None]:
        while before := self._busy.get(job_id):
            await asyncio.wait((before,))
        self._busy[job_id] = done = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._busy[job_id]
            done.set_result(None)
