"""Submit, edit and cancel jobs for the TrainingJobs that people create, edit and delete with
kubectl.

A new object is a submit by the user whom it names. A rejection is reported in a condition and an
event. Deleting an object cancels its job; the object stays until the job has ended. Edits apply
as far as a job can change, and the rest is reported as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from rota.core.explain.feasibility import checker_of
from rota.core.model.events import JobCancelled, JobEvent, JobHeld, JobReleased, JobResized
from rota.core.model.job import JobId
from rota.daemon.access.authorization import Caller
from rota.daemon.errors import LimitError
from rota.daemon.jobs.admission import Defaults, edit_event, with_defaults
from rota.daemon.jobs.job_service import checked_units
from rota.daemon.jobs.submission import SubmissionService, SubmitOptions
from rota.daemon.launch.programs import unpack
from rota.daemon.runtime.controller import Controller
from rota.errors import RotaError, StoreError, UnavailableError, UserError
from rota.kube.errors import OBJECT_TOO_LARGE, ApiError, NotStoredYetError, is_oversized
from rota.kube.resources import Object, WatchEvent
from rota.operator.change_queue import ChangeQueue, has_content, identity_of
from rota.operator.finalizers import FinalizerRemover
from rota.operator.rejections import RejectionReporter, generation_of, recreated_reason
from rota.operator.spec_parser import claimed_user, edits_of, hold_event, job_request_of, user_of
from rota.operator.store_port import TrainingJobStore
from rota.operator.training_jobs import TrainingJobClient
from rota.store.kubernetes.crd_codec import (
    ACCEPTED,
    FINALIZER,
    JOB,
    has_only_seal,
    is_sealed,
    part,
    read_training_job,
)
from rota.tasks import ErrorIsolation
from rota.wire.jobs import JobRequest

log = structlog.get_logger()

ACTOR = "kubectl"
N_WORKERS = 8
RETRY_S = 0.5
"""Delay before a change that could not be processed is retried."""
POSTPONED_S = 30.0
"""Delay before an object is processed again that the cluster could not store."""
MAX_NAME_CHARS = 63


@dataclass(frozen=True, slots=True)
class TrainingJobContext:
    """`key` verifies the seals of accepted jobs. `namespace` is the user of an object that names
    none."""

    key: bytes
    namespace: str
    defaults: Callable[[str], Defaults]


class TrainingJobController:
    """Processes the watch events of TrainingJobs, several objects at a time."""

    def __init__(
        self,
        controller: Controller,
        submissions: SubmissionService,
        *,
        store: TrainingJobStore,
        resources: TrainingJobClient,
        context: TrainingJobContext,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._submissions = submissions
        self._store = store
        self._resources = resources
        self._context = context
        self._rejections = RejectionReporter(resources, clock)
        self._changes = ChangeQueue(claimed_user)
        self._jobs: dict[str, JobId] = {}
        """Jobs by the uid of their objects."""
        self._finalizers = FinalizerRemover(controller, store)
        self._isolation = ErrorIsolation("TrainingJob not processed")

    def on_change(self, change: WatchEvent) -> None:
        self._changes.put(change)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(N_WORKERS):
                group.create_task(self._work())
            group.create_task(self._finalizers.run())

    async def _work(self) -> None:
        """Each object is processed by one worker at a time."""
        while True:
            name = await self._changes.next_name()
            while (change := self._changes.pop(name)) is not None:
                await self._reconcile_with_retry(change)

    async def _reconcile_with_retry(self, change: WatchEvent) -> None:
        """An unexpected error ends only this change: the next daemon would find the same object
        and fail again."""
        logged, is_stale = "", not has_content(change)
        while True:
            try:
                with self._isolation.of(object=change.object["metadata"]["name"]):
                    await self._reconcile_or_report(
                        await self._refreshed(change) if is_stale else change
                    )
                return None
            except UnavailableError as error:
                is_stale = True
                if isinstance(error, ApiError) and not error.is_transient:
                    return log.error("TrainingJob not processed", error=str(error))
                if logged != str(error):
                    logged = str(error)
                    log.info("TrainingJob not processed yet; retrying", error=logged)
                await asyncio.sleep(RETRY_S)
            except RotaError as error:
                return log.error("TrainingJob not processed", error=str(error))

    async def _reconcile_or_report(self, change: WatchEvent) -> None:
        try:
            await self._reconcile(change)
        except RotaError:
            raise
        except Exception as error:
            await self._rejections.emit_event(
                change.object, reason="Failed", message=message_of_bug(error)
            )
            raise

    async def _refreshed(self, change: WatchEvent) -> WatchEvent:
        """A failed write may have succeeded. Read the object again, so that it is not submitted
        twice."""
        meta = change.object["metadata"]
        now = None if change.type == "DELETED" else await self._resources.get(meta["name"])
        if now is None or now["metadata"]["uid"] != meta["uid"]:
            return WatchEvent("DELETED", change.object)
        return WatchEvent("MODIFIED", now)

    async def _reconcile(self, change: WatchEvent) -> None:
        """Process one change of one object."""
        self._controller.require_available()
        found = change.object
        uid = found["metadata"]["uid"]
        if change.type == "DELETED":
            self._rejections.forget(uid)
            await self._cancel_deleted(uid)
            return
        try:
            job_id = await self._job_of(found)
        except StoreError as error:
            await self._rejections.mark_unreadable(found, str(error))
            return
        if job_id is None:
            await self._submit(found)
        elif found["metadata"].get("deletionTimestamp"):
            await self._finalize(job_id, found)
        elif is_oversized(found):
            await self._cancel_oversized(job_id, found)
        elif generation_of(found) > self._observed(job_id, found):
            await self._edit(job_id, found)

    async def _job_of(self, found: Object) -> JobId | None:
        """The job of an object; None for a new object."""
        meta = found["metadata"]
        if meta["uid"] not in self._jobs and (own := self._created_by_us(meta)):
            self._jobs[meta["uid"]] = own
        if meta["uid"] in self._jobs:
            return self._jobs[meta["uid"]]
        kept = read_training_job(found, key=self._context.key)
        if kept is None or (has_only_seal(found) and await self._is_restored(kept.job.id, found)):
            return None
        self._jobs[meta["uid"]] = kept.job.id
        return kept.job.id

    def _created_by_us(self, meta: Object) -> JobId | None:
        """The job of an object that is unchanged since rota created it, as most are. This saves
        parsing it. None: parse it."""
        job_id = JobId(str(part(meta, "labels").get(JOB)))
        text = str(part(meta, "annotations").get(ACCEPTED) or "")
        return job_id if self._store.is_own_object(job_id, meta["name"], accepted=text) else None

    async def _is_restored(self, job_id: JobId, found: Object) -> bool:
        """Whether an object that rota created was restored after its job ended or was lost.
        Reads the object again, because the event may be older than our own writes."""
        if self._store.owns_object(job_id):
            return False
        now = await self._resources.get(found["metadata"]["name"])
        return now is not None and has_only_seal(now)

    def _observed(self, job_id: JobId, found: Object) -> int:
        observed = part(found, "status").get("observedGeneration") or 1
        return max(observed, self._store.status_details(job_id).observed)

    # -- submit ---------------------------------------------------------------------------------

    async def _submit(self, found: Object) -> None:
        meta = found["metadata"]
        if meta.get("deletionTimestamp"):
            if FINALIZER in (meta.get("finalizers") or ()):
                await self._resources.remove_finalizer(meta["name"])
            return
        if self._rejections.has_rejected(found):
            return
        if is_sealed(found, key=self._context.key):
            # It was accepted before, so it is not a new submit.
            outcomes = self._controller.outcomes
            await self._rejections.reject(found, recreated_reason(meta, outcomes))
            return
        if is_oversized(found):
            await self._rejections.reject(found, OBJECT_TOO_LARGE)
            return

        def claim(job_id: JobId) -> None:
            self._jobs[meta["uid"]] = job_id
            self._store.adopt(job_id, meta["name"])

        try:
            request = _named(job_request_of(found.get("spec")), meta["name"])
            options = SubmitOptions(on_job_id=claim)
            caller = Caller(user_of(meta, default=self._context.namespace))
            job_id = await self._submissions.submit_from_object(caller, request, options=options)
        except (NotStoredYetError, LimitError) as error:
            self._jobs.pop(meta["uid"], None)
            await self._postpone(found, str(error))
            return
        except UserError as error:
            self._jobs.pop(meta["uid"], None)
            await self._rejections.reject(found, str(error))
            return
        except BaseException:
            self._jobs.pop(meta["uid"], None)
            raise
        log.info("TrainingJob accepted", object=meta["name"], job_id=job_id)
        await self._edit(job_id, found)

    async def _postpone(self, found: Object, message: str) -> None:
        """Process this object again later. Others do not wait for it."""
        again = WatchEvent("MODIFIED", identity_of(found))
        asyncio.get_running_loop().call_later(POSTPONED_S, self._changes.put, again)
        await self._rejections.emit_event(found, reason="Waiting", message=message)

    # -- delete ---------------------------------------------------------------------------------

    async def _finalize(self, job_id: JobId, found: Object) -> None:
        name = found["metadata"]["name"]
        if self._controller.job(job_id) is None:
            await self._store.remove_finalizer(job_id, name)
        else:
            self._finalizers.wait_for(job_id, name)
            await self._cancel(job_id)

    async def _cancel_deleted(self, uid: str) -> None:
        if job_id := self._jobs.get(uid):
            self._store.forget_object(job_id)
            await self._cancel(job_id)
            del self._jobs[uid]

    async def _cancel_oversized(self, job_id: JobId, found: Object) -> None:
        """A job whose state cannot be stored must not run: the next daemon would not know it."""
        if self._controller.job(job_id) is not None:
            await self._cancel(job_id, OBJECT_TOO_LARGE)
            await self._rejections.emit_event(found, reason="Cancelled", message=OBJECT_TOO_LARGE)

    async def _cancel(self, job_id: JobId, reason: str = "") -> None:
        if self._controller.job(job_id) is not None:
            await self._apply(JobCancelled(job_id, ACTOR, reason))

    # -- edit -----------------------------------------------------------------------------------

    async def _edit(self, job_id: JobId, found: Object) -> None:
        job, submission = self._controller.job(job_id), self._store.submission(job_id)
        if job is None or submission is None:
            return
        refusals: list[tuple[str, str]] = []
        try:
            accepted = unpack(submission).request
            asked = with_defaults(
                _named(job_request_of(found["spec"]), found["metadata"]["name"]),
                user=submission.user,
                defaults=self._context.defaults(accepted.project),
            )
            edits = edits_of(found["spec"], job, accepted=accepted, asked=asked)
            if edits.refused:
                what = f"{', '.join(edits.refused)} cannot be changed now"
                refusals.append(
                    ("Immutable", f"{what}; delete the TrainingJob and create it again")
                )
            hold = hold_event(edits, job, actor=ACTOR)
            if isinstance(hold, JobHeld):
                await self._apply(hold)
            if edits.edit is not None:
                if edits.edit.priority is not None:
                    # Only the cluster knows who wrote the object, so no edit is an administrator's.
                    self._submissions.require_priority(
                        Caller(submission.user), edits.edit.priority, current=job.spec.priority
                    )
                nodes = checker_of(self._controller.nodes.values())
                await self._apply(edit_event(job, edits.edit, actor=ACTOR, feasibility=nodes))
            # Some fields change only while the job is held or queued.
            if isinstance(hold, JobReleased):
                await self._apply(hold)
            if edits.size is not None:
                units = checked_units(job, edits.size)
                await self._apply(JobResized(job_id, units, ACTOR))
        except UserError as error:
            refusals.append(("Refused", str(error)))
        await self._record_refusals(job_id, found, refusals=refusals)

    async def _record_refusals(
        self, job_id: JobId, found: Object, *, refusals: list[tuple[str, str]]
    ) -> None:
        """Joined in one condition: conditions are unique by type."""
        message = "; ".join(each for _, each in refusals)
        notes = (("SpecApplied", refusals[0][0], message),) if refusals else ()
        shown = self._store.status_details(job_id)
        self._store.set_status_details(
            job_id, replace(shown, observed=generation_of(found), notes=notes)
        )
        if notes and notes != shown.notes:
            await self._rejections.emit_event(found, reason=refusals[0][0], message=message)

    async def _apply(self, event: JobEvent) -> None:
        await self._controller.durable(self._controller.apply_event(event, actor=ACTOR))


def message_of_bug(error: Exception) -> str:
    """For the owner of an object that could not be processed. The log has the details."""
    return f"a bug in rota ({type(error).__name__}) keeps this object from being processed"


def _named(request: JobRequest, name: str) -> JobRequest:
    return request if request.name else replace(request, name=name[:MAX_NAME_CHARS])
