"""The store of a Kubernetes cluster: TrainingJob objects are the truth, a local file has history.

The store acknowledges a batch when the API server has everything that others depend on: a submit is
an object before it is acknowledged, and a fence is in a status before any worker starts. Queries
read the local file. `load` updates the file from the objects when this daemon becomes leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import structlog

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Ended, Job, JobId
from rota.core.model.node import Node
from rota.errors import (
    FenceRejectedError,
    StoreError,
    StoreErrorKind,
    UnavailableError,
    WriteRejectedError,
)
from rota.store.interface import PAGE_SIZE, STORY_SIZE, Batch, R, Store
from rota.store.kubernetes.api_port import TrainingJobPort
from rota.store.kubernetes.catch_up import LocalJobs, catch_up, catch_up_rows, merged_with_local
from rota.store.kubernetes.changes import Changes
from rota.store.kubernetes.crd_codec import (
    Object,
    StatusDetails,
    StoredTrainingJob,
    external_pod_of,
    has_only_seal,
    id_of,
    read_training_job,
    split_unaccepted,
)
from rota.store.kubernetes.rejected_endings import endings_in, job_ending, with_ending
from rota.store.kubernetes.status_watermark import StatusWatermark
from rota.store.kubernetes.status_writer import StatusWriter
from rota.store.records import (
    ALL,
    Attempt,
    AuditEntry,
    JobFilter,
    SampleRecord,
    SavedState,
    StoredJobPage,
    Submission,
)
from rota.tasks import ErrorIsolation, Tasks

log = structlog.get_logger()
DEFERRED_INTERVAL_S = 3.0
"""How long the store waits before it looks for deferred statuses again, when none are left."""
REST_FACTOR = 2.0
"""While deferred statuses are left, the pause after each write, relative to its duration."""
EMPTY_BATCH = Batch()


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A batch that waits for the API server and the local file, or a request to resume."""

    batch: Batch = EMPTY_BATCH
    changes: Changes = field(default_factory=Changes)
    done: Future[None] = field(default_factory=Future[None])
    resumes: bool = False

    @property
    def submit(self) -> JobId | None:
        """The first job of the submit in this batch."""
        return self.changes.accepted[0].batch if self.changes.accepted else None

    def fence_error(
        self, rejected: Mapping[JobId, WriteRejectedError]
    ) -> FenceRejectedError | None:
        """Return an error for the jobs whose fence was rejected. An ending job needs no fence."""
        jobs = [
            job.id for job in self.changes.jobs if job.id in rejected and job_ending(job) is None
        ]
        return FenceRejectedError({each: str(rejected[each]) for each in jobs}) if jobs else None

    def follow(self, written: Future[None], *, fence_error: FenceRejectedError | None) -> None:
        """Complete when the local write completes."""
        written.add_done_callback(lambda _: self._complete(written.exception() or fence_error))

    def fail(self, error: StoreError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def _complete(self, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class KubernetesStore:
    """Satisfies `rota.store.interface.Store`.

    Create the store in an event loop; its tasks run there. `prepare`, `load` and `close` block, so
    other threads must call them.
    """

    def __init__(
        self,
        local: Store,
        api: TrainingJobPort,
        *,
        key: bytes,
        nodes: Callable[[], tuple[Node, ...]],
        ignore_jobs: Callable[[frozenset[JobId]], None] | None = None,
        know_external_pods: Callable[[Mapping[JobId, str]], None] | None = None,
    ) -> None:
        """The store calls `ignore_jobs` with the jobs whose objects are unreadable: the engine must
        leave their workers alone; and `know_external_pods` with the jobs that stand for a pod of a
        user, as NAME/UID."""
        self._local, self._api, self._key = local, api, key
        self._nodes, self._ignore_jobs = nodes, ignore_jobs
        self._know_external_pods = know_external_pods
        self._unreadable: frozenset[JobId] = frozenset()
        self._unreadable_without_status: set[JobId] = set()
        """Unreadable objects that have only a seal. The watermark must stay below them until a
        version of rota that can read them writes their status."""
        self._status_writer = StatusWriter(api, key=key)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[PendingWrite | None] = asyncio.Queue()
        self._failure: StoreError | None = None
        self._writer_failure: StoreError | None = None
        """The bug that ended the writer: nothing is written after it."""
        self._rejected: set[JobId] = set()
        """Rejected jobs that have not ended yet. Their changes do not go to the local file."""
        self._is_closed = False
        self._is_drained = asyncio.Event()
        self._isolation = ErrorIsolation("deferred status updates failed")
        self._tasks = Tasks()
        self._tasks.spawn_critical(self._run_writer())
        self._tasks.spawn_critical(self._run_deferred_updates())

    def write(self, batch: Batch) -> Future[None]:
        return self._enqueue(PendingWrite(batch.copied(), self._status_writer.changes_of(batch)))

    def resume(self) -> Future[None]:
        return self._enqueue(PendingWrite(resumes=True))

    def prepare(self) -> None:
        """Copy users, tokens and projects to the local file, so that the API can authenticate
        requests before `load`."""
        catch_up_rows(self._local, self._run_in_loop(self._api.rows())).result()

    def load(self) -> SavedState:
        rows: dict[str, str] = self._run_in_loop(self._api.rows())
        found: list[StoredTrainingJob] = self._run_in_loop(self._read_all(rows))
        ends, local_jobs = endings_in(rows), LocalJobs(self._local)
        stored = [merged_with_local(with_ending(each, ends), local_jobs) for each in found]
        outdated = [new.job.id for old, new in zip(found, stored, strict=True) if old is not new]
        existing = self._unreadable | {each.job.id for each in stored}
        deleted = [job for job in local_jobs.live.values() if job.id not in existing]
        catch_up(self._local, stored, local_jobs=local_jobs, deleted=deleted, rows=rows).result()
        self._run_in_loop(self._restore(stored, outdated, rows=rows))
        jobs = tuple(each.job for each in stored if not isinstance(each.job.phase, Ended))
        outcomes = {each.job.id: each.job.state for each in stored} | dict(local_jobs.outcomes)
        outcomes |= {job.id: JobState.CANCELLED for job in deleted}
        # A dependency without any record has succeeded: otherwise the job would have failed.
        dependencies = {each for job in jobs for each in job.spec.dependencies} - self._unreadable
        assumed = dict.fromkeys(dependencies, JobState.SUCCEEDED)
        ended = {each: state for each, state in (assumed | outcomes).items() if state.is_final}
        return SavedState(jobs, self._status_writer.drains.applied(self._nodes()), ended)

    async def broken(self) -> None:
        """Raise when a background task of the store has failed: it then writes nothing more."""
        fault = await self._tasks.wait_failed()
        raise _writer_failure(fault) from fault

    def close(self) -> None:
        self._run_in_loop(self._finish())
        self._local.close()

    # -- queries, which the local file answers --------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        return self._local.job(job_id)

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> StoredJobPage:
        return self._local.jobs(wanted, before=before, limit=limit)

    def count_jobs(self, wanted: JobFilter = ALL) -> int:
        return self._local.count_jobs(wanted)

    def submission(self, job_id: JobId) -> Submission | None:
        return self._local.submission(job_id)

    def request_bytes(self) -> Mapping[str, int]:
        return self._local.request_bytes()

    def job_with_key(self, user: str, key: str) -> JobId | None:
        return self._local.job_with_key(user, key)

    def attempts(self, job_id: JobId) -> list[Attempt]:
        return self._local.attempts(job_id)

    def story(
        self, job_id: JobId | None = None, *, after: int = 0, limit: int = STORY_SIZE
    ) -> list[AuditEntry]:
        return self._local.story(job_id, after=after, limit=limit)

    def newest_entry(self) -> int:
        return self._local.newest_entry()

    def samples(self, job_id: JobId) -> list[SampleRecord]:
        return self._local.samples(job_id)

    def expired_jobs(self, before_s: float, *, keep: Collection[JobId], limit: int) -> list[JobId]:
        return self._local.expired_jobs(before_s, keep=keep, limit=limit)

    def expired_entries(self, before_s: float, *, limit: int) -> list[int]:
        return self._local.expired_entries(before_s, limit=limit)

    def rows(self, kind: type[R]) -> list[R]:
        return self._local.rows(kind)

    # -- objects of jobs, for the controllers of rota.operator ----------------------------------

    def adopt(self, job_id: JobId, name: str) -> None:
        """Use a user's object for the next submit with this id, instead of creating one."""
        self._status_writer.adopt(job_id, name)

    def set_status_details(self, job_id: JobId, details: StatusDetails) -> None:
        """Set the informative part of a job's status. The write is deferred."""
        self._status_writer.set_details(job_id, details)

    def status_details(self, job_id: JobId) -> StatusDetails:
        return self._status_writer.details(job_id)

    def object_name(self, job_id: JobId) -> str:
        """Return the name of a live job's object, or an empty string."""
        return self._status_writer.object_name(job_id)

    def owns_object(self, job_id: JobId) -> bool:
        """Whether this store writes the status of the job's object."""
        return self._status_writer.is_known(job_id)

    def forget_object(self, job_id: JobId) -> None:
        """Stop writing to a deleted object. A new object of the same name is another one."""
        self._status_writer.forget_object(job_id)

    def is_own_object(self, job_id: JobId, name: str, *, accepted: str) -> bool:
        """Whether this store created the object for the job."""
        return self._status_writer.is_own_object(job_id, name, accepted=accepted)

    async def remove_finalizer(self, job_id: JobId, name: str) -> None:
        await self._status_writer.remove_finalizer(job_id, name)

    # -- writing --------------------------------------------------------------------------------

    def _enqueue(self, pending: PendingWrite) -> Future[None]:
        pending.done.set_running_or_notify_cancel()
        if self._is_closed:
            raise StoreError(StoreErrorKind.CLOSED, "the store of the cluster is closed")
        self._loop.call_soon_threadsafe(self._put, pending)
        return pending.done

    def _put(self, pending: PendingWrite) -> None:
        if self._writer_failure is not None:
            pending.fail(self._writer_failure)
        else:
            self._queue.put_nowait(pending)

    async def _run_writer(self) -> None:
        """Write until the store closes. After a bug, no write stays without an answer."""
        group: list[PendingWrite] = []
        try:
            is_open = True
            while is_open:
                group, is_open = await self._next_group()
                if group:
                    await self._write_group(group)
        except Exception as error:
            self._writer_failure = failure = _writer_failure(error)
            while not self._queue.empty():
                group += [each for each in (self._queue.get_nowait(),) if each is not None]
            for pending in group:
                pending.fail(failure)
            raise
        finally:
            self._is_drained.set()

    async def _next_group(self) -> tuple[list[PendingWrite], bool]:
        """Wait for a write, then add all queued ones. Also return whether the store is open."""
        group: list[PendingWrite] = []
        pending = await self._queue.get()
        while pending is not None:
            group.append(pending)
            if self._queue.empty():
                return group, True
            pending = self._queue.get_nowait()
        return group, False

    async def _write_group(self, group: Sequence[PendingWrite]) -> None:
        """Write to the API server first, then to the local file."""
        active = self._skip_until_resumed(group)
        try:
            if any(pending.resumes for pending in active):
                await self._api.check()
            rejected = await self._status_writer.publish([pending.changes for pending in active])
        except Exception as error:  # noqa: BLE001 - every caller must get a result
            self._failure = _to_store_error(error)
            for pending in active:
                pending.done.set_exception(self._failure)
        else:
            for pending in active:
                if self._failure is not None:
                    pending.done.set_exception(self._failure)
                elif error := rejected.submits.get(pending.submit) if pending.submit else None:
                    self._reject(pending, error)
                else:
                    fence_error = pending.fence_error(rejected.statuses)
                    self._write_locally(pending, fence_error=fence_error)

    def _skip_until_resumed(self, group: Sequence[PendingWrite]) -> Sequence[PendingWrite]:
        """After a failure, fail the writes before the next `resume` and return the rest."""
        for index, pending in enumerate(group):
            if self._failure is None or pending.resumes:
                self._failure = None
                return group[index:]
            pending.done.set_exception(self._failure)
        return ()

    def _reject(self, pending: PendingWrite, error: WriteRejectedError) -> None:
        self._rejected |= {each.job_id for each in pending.changes.accepted}
        pending.done.set_exception(error)

    def _write_locally(
        self, pending: PendingWrite, *, fence_error: FenceRejectedError | None
    ) -> None:
        try:
            batch = pending.batch.without(self._rejected) if self._rejected else pending.batch
            jobs = pending.batch.effects.jobs.values()
            self._rejected.difference_update(job.id for job in jobs if isinstance(job.phase, Ended))
            written = self._local.resume() if pending.resumes else self._local.write(batch)
        except Exception as error:  # noqa: BLE001 - every caller must get a result
            self._failure = _to_store_error(error)
            pending.done.set_exception(self._failure)
        else:
            pending.follow(written, fence_error=fence_error)

    async def _run_deferred_updates(self) -> None:
        """Write deferred statuses in the background, with pauses, until the store closes."""
        while True:
            began_s, has_more = self._loop.time(), False
            try:
                with self._isolation.of():
                    is_writing = self._failure is None
                    has_more = is_writing and await self._status_writer.publish_deferred()
            except UnavailableError as error:
                log.warning("deferred status updates failed", error=str(error))
            rest_s = REST_FACTOR * (self._loop.time() - began_s)
            await asyncio.sleep(rest_s if has_more else DEFERRED_INTERVAL_S)

    async def _finish(self) -> None:
        self._is_closed = True
        self._queue.put_nowait(None)
        await self._is_drained.wait()
        await self._tasks.close()

    # -- reading the objects --------------------------------------------------------------------

    async def _read_all(self, rows: Mapping[str, str]) -> list[StoredTrainingJob]:
        """Return the accepted jobs by submission time. Delete objects of incomplete submits."""
        watermark, ends = StatusWatermark(rows), endings_in(rows)
        read = [self._read(each, watermark, ends=ends) for each in await self._api.all()]
        if self._ignore_jobs is not None:
            self._ignore_jobs(self._unreadable)
        found = [each for each in read if each is not None and each.job.id not in self._unreadable]
        accepted, incomplete = split_unaccepted(found)
        for each in incomplete:
            log.info("object of an incomplete submit deleted", object=each.name)
            await self._api.remove(each.name)
        return sorted(accepted, key=lambda each: (each.job.submitted_s, each.job.id))

    def _read(
        self, found: Object, watermark: StatusWatermark, *, ends: Container[JobId]
    ) -> StoredTrainingJob | None:
        """Return the job of an object. None for an object that is unreadable, never accepted, or
        restored by a user; the TrainingJob controller reports the reason to the user."""
        try:
            stored = read_training_job(found, key=self._key)
        except StoreError as error:
            self._unreadable |= {id_of(found)}
            self._unreadable_without_status |= {id_of(found)} if has_only_seal(found) else set()
            log.error("TrainingJob unreadable, its pods are left alone", error=str(error))
            return None
        if stored is None or stored.job.id in ends or not has_only_seal(found):
            return stored
        return None if watermark.covers(stored.job.id) else stored

    async def _restore(
        self,
        stored: Sequence[StoredTrainingJob],
        outdated: Sequence[JobId],
        *,
        rows: dict[str, str],
    ) -> None:
        if self._know_external_pods is not None:
            pods = {each.job.id: external_pod_of(each) for each in stored}
            self._know_external_pods({job_id: pod for job_id, pod in pods.items() if pod})
        self._rejected.clear()
        self._status_writer.restore(
            stored, rows, outdated=outdated, unreadable=self._unreadable_without_status
        )
        self._status_writer.drains.restore(rows)
        existing = self._unreadable | {each.job.id for each in stored}
        self._status_writer.rejected_endings.restore(rows, existing=existing)

    def _run_in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(_with_store_errors(work), self._loop).result()


def _writer_failure(fault: BaseException) -> StoreError:
    what = f"a bug in rota ({type(fault).__name__}): the store of the cluster stopped writing"
    return StoreError(StoreErrorKind.CLOSED, what, "restart rota, and report the bug")


async def _with_store_errors(work: Any) -> Any:
    try:
        return await work
    except UnavailableError as error:
        raise _to_store_error(error) from None


def _to_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, UnavailableError):
        return StoreError(StoreErrorKind.IO, error.message, error.hint)
    log.error("batch not written", exc_info=error)
    return StoreError(
        StoreErrorKind.REFUSED,
        f"{type(error).__name__}: {error}",
        "this is a bug in rota; please report it",
    )
