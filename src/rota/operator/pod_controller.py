"""Submit a job for each pod with `schedulerName: rota`, report why it waits, cancel the job when
the pod is deleted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import structlog

from rota.core.lifecycle.states import JobState, Purpose
from rota.core.model.events import JobCancelled
from rota.core.model.job import Job, JobId, Queued, Stopping
from rota.core.model.units import format_bytes
from rota.daemon.access.authorization import Caller
from rota.daemon.jobs.submission import SubmissionService, SubmitOptions
from rota.daemon.jobs.views import WaitReasons
from rota.daemon.launch.programs import unpack
from rota.daemon.runtime.controller import Controller
from rota.engines.kubernetes.external_pods import (
    USER,
    ExternalPodRequest,
    NotYetError,
    external_pod_request,
    is_waiting,
    require_mountable,
)
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.naming import SCHEDULER
from rota.errors import RotaError, UnavailableError, UserError, WriteRejectedError
from rota.kube.client import KubeClient
from rota.kube.errors import NOT_FOUND, ApiError
from rota.kube.resources import PODS, Object, ResourceScope, WatchEvent, part
from rota.operator.change_queue import ChangeQueue, has_content, identity_of
from rota.operator.training_job_controller import ACTOR, MAX_NAME_CHARS, message_of_bug
from rota.operator.training_jobs import TrainingJobClient
from rota.store.interface import Store
from rota.tasks import ErrorIsolation
from rota.wire.jobs import JobRequest

log = structlog.get_logger()

RETRY_S = 0.5
CHECK_INTERVAL_S = 5.0
MAX_RETRIES_PER_PASS = 50
"""How many postponed pods are tried again in one pass."""
POD_NOT_RECREATED = "its pod is deleted; the pod's owner has to create a new one"
ROTA = "rota"
MIN_EVENT_INTERVAL_S = 30.0
"""The least time between two events with the same reason about one pod."""


@dataclass(slots=True)
class _LastEvent:
    reason: str
    message: str
    at_s: float


class PodController:
    """Processes the watch events of external pods, one pod at a time."""

    def __init__(
        self,
        controller: Controller,
        submissions: SubmissionService,
        *,
        store: Store,
        reasons: WaitReasons,
        client: KubeClient,
        resources: TrainingJobClient,
        gpu_resource: str,
    ) -> None:
        self._controller = controller
        self._submissions = submissions
        self._store = store
        self._reasons = reasons
        self._client = client
        self._resources = resources
        self._gpu_resource = gpu_resource
        self._changes = ChangeQueue(_claimed_user)
        self._jobs: dict[str, JobId] = {}
        """Jobs by the uid of their pods."""
        self._pods: dict[str, Object] = {}
        """The identity of each pod by uid. The pods themselves may be large."""
        self._last_events: dict[str, _LastEvent] = {}
        self._isolation = ErrorIsolation("pod not processed")
        self._retry_later: dict[str, None] = {}
        """Pods that need something which may still appear: a volume claim, or a node."""
        self._may_miss_jobs = False
        """Whether a pod may have a job that is not in `_jobs`: a failed submit may have been
        written."""

    @property
    def scope(self) -> ResourceScope:
        return ResourceScope(self._client.namespace, fields=f"spec.schedulerName={SCHEDULER}")

    def on_change(self, change: WatchEvent) -> None:
        self._changes.put(change)

    async def run(self) -> None:
        self._load_known_jobs()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work())
            group.create_task(self._report_waiting_reasons())

    def _load_known_jobs(self) -> None:
        """Find the pods that already have jobs."""
        self._may_miss_jobs = False
        for job_id in self._controller.jobs:
            submission = self._store.submission(job_id)
            pod = unpack(submission).pod if submission else ""
            if pod:
                self._jobs[pod.partition("/")[2]] = job_id

    async def _work(self) -> None:
        """Process events, and retry postponed pods at intervals. One task, so a pod is never
        processed twice at once."""
        loop = asyncio.get_running_loop()
        next_check_s = loop.time() + CHECK_INTERVAL_S
        while True:
            name = ""
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_check_s):
                    name = await self._changes.next_name()
            while name and (change := self._changes.pop(name)) is not None:
                await self._reconcile_with_retry(change)
            if loop.time() >= next_check_s:
                await self._retry_some()
                next_check_s = loop.time() + CHECK_INTERVAL_S

    async def _retry_some(self) -> None:
        for uid in list(islice(self._retry_later, MAX_RETRIES_PER_PASS)):
            del self._retry_later[uid]
            if pod := self._pods.get(uid):
                await self._reconcile_with_retry(WatchEvent("MODIFIED", pod))

    async def _read_again(self, change: WatchEvent) -> WatchEvent:
        """The event with the pod as it is now; a DELETED event if it is gone."""
        meta = change.object["metadata"]
        try:
            found = await self._client.get(PODS, meta["name"])
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return WatchEvent("DELETED", change.object)
        is_same = found["metadata"]["uid"] == meta["uid"]
        return WatchEvent("MODIFIED" if is_same else "DELETED", found if is_same else change.object)

    async def _reconcile_with_retry(self, change: WatchEvent) -> None:
        """An unexpected error ends only this change: the next daemon would find the same pod and
        fail again."""
        logged = ""
        while True:
            try:
                with self._isolation.of(pod=change.object["metadata"]["name"]):
                    await self._reconcile_or_report(
                        change if has_content(change) else await self._read_again(change)
                    )
                return None
            except UnavailableError as error:
                if isinstance(error, ApiError) and not error.is_transient:
                    return await self._postpone(change.object, error)
                if logged != str(error):
                    logged = str(error)
                    log.info("pod not processed yet; retrying", error=logged)
                await asyncio.sleep(RETRY_S)
            except RotaError as error:
                return log.error("pod not processed", error=str(error))

    async def _reconcile_or_report(self, change: WatchEvent) -> None:
        try:
            await self._reconcile(change)
        except RotaError:
            raise
        except Exception as error:
            await self._emit_event(change.object, reason="Failed", message=message_of_bug(error))
            raise

    async def _postpone(self, pod: Object, error: RotaError) -> None:
        """Retry this pod later. A refusal of one pod must not delay the others."""
        self._retry_later[pod["metadata"]["uid"]] = None
        await self._emit_event(pod, reason="Waiting", message=str(error))

    async def _reconcile(self, change: WatchEvent) -> None:
        pod, uid = change.object, change.object["metadata"]["uid"]
        self._controller.require_available()
        if self._may_miss_jobs:
            self._load_known_jobs()
        if change.type == "DELETED":
            await self._cancel(self._jobs.get(uid), pod)
            self._jobs.pop(uid, None)
            self._pods.pop(uid, None)
            self._last_events.pop(uid, None)
            return
        self._pods[uid] = identity_of(pod)
        if pod["metadata"].get("deletionTimestamp"):
            await self._cancel(self._jobs.get(uid), pod)
        elif uid not in self._jobs and is_waiting(pod):
            await self._submit(pod)

    async def _cancel(self, job_id: JobId | None, pod: Object) -> None:
        """Cancel the job of a deleted pod. The job cannot restart without its pod."""
        if job_id is None:
            return
        message = self._why_stopped(job_id)
        actor = ROTA if message else ACTOR
        await self._emit_event(pod, reason="Stopped", message=message)
        controller = self._controller
        job = controller.job(job_id)
        if job is not None and not _is_cancelled(job):
            await controller.durable(
                controller.apply_event(JobCancelled(job.id, actor, message), actor=actor)
            )

    def _why_stopped(self, job_id: JobId) -> str:
        """Why rota stopped the pod, if it did. By now its job may be queued again or have ended."""
        for transition in (entry.transition for entry in self._store.story(job_id)):
            if transition.after is JobState.STOPPING and transition.cause != JobCancelled.__name__:
                return f"{transition.reason}: {POD_NOT_RECREATED}"
        return ""

    async def _submit(self, pod: Object) -> None:
        meta = pod["metadata"]

        def claim(job_id: JobId) -> None:
            self._jobs[meta["uid"]] = job_id

        try:
            pod_request = external_pod_request(pod, gpu_resource=self._gpu_resource)
        except UserError as error:
            await self._emit_event(pod, reason="Refused", message=str(error))
            return
        try:
            await require_mountable(self._client, pod_request.claims)
            pod_id = f"{meta['name']}/{meta['uid']}"
            options = SubmitOptions(
                on_job_id=claim, pod=pod_id, tolerations=pod_request.tolerations
            )
            caller = Caller(pod_request.user or self._client.namespace)
            await self._submissions.submit_from_object(
                caller, job_request(meta["name"], pod_request), options=options
            )
        except (NotYetError, WriteRejectedError) as error:
            self._jobs.pop(meta["uid"], None)
            await self._postpone(pod, error)
        except UserError as error:
            self._retry_later[meta["uid"]] = None
            await self._emit_event(pod, reason="Refused", message=str(error))
        except BaseException:
            self._jobs.pop(meta["uid"], None)
            self._may_miss_jobs = True
            raise

    # -- events about pods ----------------------------------------------------------------------

    async def _report_waiting_reasons(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for uid, job_id in list(self._jobs.items()):
                job, pod = self._controller.job(job_id), self._pods.get(uid)
                if pod is not None and job is not None and isinstance(job.phase, Queued):
                    with self._isolation.of(job=job_id):
                        await self._emit_event(
                            pod, reason="Waiting", message=self._reasons.why(job)
                        )

    async def _emit_event(self, pod: Object, *, reason: str, message: str) -> None:
        uid, now = pod["metadata"]["uid"], asyncio.get_running_loop().time()
        last = self._last_events.get(uid)
        if not message or (last and last.message == message):
            return
        if last and last.reason == reason and now - last.at_s < MIN_EVENT_INTERVAL_S:
            return
        self._last_events[uid] = _LastEvent(reason, message, now)
        try:
            await self._resources.event(pod, kind=PODS, reason=reason, message=message)
        except ApiError as error:
            log.warning("event not written", error=str(error))


def _claimed_user(pod: Object) -> str:
    labels = part(pod, "metadata", "labels")
    return str(labels.get(USER) or labels.get(naming.USER) or "")


def _is_cancelled(job: Job) -> bool:
    return isinstance(job.phase, Stopping) and job.phase.purpose is Purpose.CANCEL


def job_request(name: str, pod_request: ExternalPodRequest) -> JobRequest:
    return JobRequest(
        command=pod_request.command,
        name=name[:MAX_NAME_CHARS],
        gpus=str(pod_request.gpus),
        gpus_per_worker=pod_request.gpus,
        cpus=pod_request.cpus,
        memory=format_bytes(pod_request.memory_bytes) if pod_request.memory_bytes else "",
        priority=pod_request.priority,
        node_labels=pod_request.node_labels,
    )
