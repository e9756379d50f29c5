"""Pods with `schedulerName: rota` as jobs: taken in, told why they wait, cancelled when deleted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import structlog

from rota.core.events import JobCancelled
from rota.core.model import Job, JobId, Queued, Stopping
from rota.core.states import Purpose, State
from rota.daemon.desk import Desk
from rota.daemon.intake import Arrival
from rota.daemon.people import Caller
from rota.daemon.petitions import ACTOR, LONGEST_NAME
from rota.daemon.programs import unpack
from rota.engines.kubernetes.api import PODS, ApiError, Change, Cluster, Object, Scope
from rota.engines.kubernetes.names import SCHEDULER
from rota.engines.kubernetes.plain_pods import (
    Asked,
    NotYetError,
    asked_of,
    is_waiting,
    require_mountable,
)
from rota.engines.kubernetes.resources import Resources
from rota.errors import NotKeptError, RotaError, UnavailableError, UserError
from rota.tasks import Bugs
from rota.wire.jobs import JobRequest

log = structlog.get_logger()

PAUSE_S = 0.5
LOOK_S = 5.0
LOOKS = 50
"""So many of those that cannot be taken in are tried again each time, in turn."""
NOT_AGAIN = "its pod is deleted, and whoever made that makes another"
OURSELVES = "rota"
QUIET_S = 30.0
"""A pod is told another reason to wait at most so often."""


@dataclass(slots=True)
class _Told:
    reason: str
    words: str
    at_s: float


class PlainPods:
    def __init__(
        self, desk: Desk, cluster: Cluster, *, resources: Resources, gpu_resource: str
    ) -> None:
        self._desk = desk
        self._cluster = cluster
        self._resources = resources
        self._gpu_resource = gpu_resource
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._jobs: dict[str, JobId] = {}
        """By the uid of their pods."""
        self._pods: dict[str, Object] = {}
        self._told: dict[str, _Told] = {}
        self._bugs = Bugs("a pod was left alone")
        self._not_yet: dict[str, None] = {}
        """Those that need something which may still come: a claim, a node."""
        self._is_unsure = False
        """Whether a pod may have a job that we do not know of: what failed may have been written
        all the same."""

    @property
    def scope(self) -> Scope:
        return Scope(self._cluster.namespace, fields=f"spec.schedulerName={SCHEDULER}")

    def hear(self, change: Change) -> None:
        self._changes.put_nowait(change)

    async def run(self) -> None:
        self._recall()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work())
            group.create_task(self._keep_telling())

    def _recall(self) -> None:
        """Which pods have jobs already."""
        self._is_unsure = False
        for job_id in self._desk.shell.kernel.jobs:
            submission = self._desk.store.submission(job_id)
            pod = unpack(submission.program).pod if submission else ""
            if pod:
                self._jobs[pod.partition("/")[2]] = job_id

    async def _work(self) -> None:
        """One pod is never in two hands at once."""
        loop = asyncio.get_running_loop()
        look_s = loop.time() + LOOK_S
        while True:
            change: Change | None = None
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look_s):
                    change = await self._changes.get()
            if change is not None:
                await self._heed_in_the_end(change)
            if loop.time() >= look_s:
                await self._look_again()
                look_s = loop.time() + LOOK_S

    async def _look_again(self) -> None:
        for uid in list(islice(self._not_yet, LOOKS)):
            del self._not_yet[uid]
            if pod := self._pods.get(uid):
                await self._heed_in_the_end(Change("MODIFIED", pod))

    async def _heed_in_the_end(self, change: Change) -> None:
        """One that we stumble over must not end it for all: the next daemon would come to it, too,
        and stumble."""
        said = ""
        while True:
            try:
                with self._bugs.of(pod=change.object["metadata"]["name"]):
                    await self._heed(change)
                return None
            except UnavailableError as error:
                if isinstance(error, ApiError) and not error.is_passing:
                    return await self._put_off(change.object, error)
                if said != str(error):
                    said = str(error)
                    log.info("a pod has to wait", error=said)
                await asyncio.sleep(PAUSE_S)
            except RotaError as error:
                return log.error("a pod was left alone", error=str(error))

    async def _put_off(self, pod: Object, error: RotaError) -> None:
        """What the cluster refuses us about one pod is no reason for the others to wait."""
        self._not_yet[pod["metadata"]["uid"]] = None
        await self._tell(pod, reason="Waiting", words=str(error))

    async def _heed(self, change: Change) -> None:
        pod, uid = change.object, change.object["metadata"]["uid"]
        self._desk.shell.require_sound()
        if self._is_unsure:
            self._recall()
        if change.type == "DELETED":
            await self._end(self._jobs.get(uid), pod)
            self._jobs.pop(uid, None)
            self._pods.pop(uid, None)
            self._told.pop(uid, None)
            return
        self._pods[uid] = pod
        if pod["metadata"].get("deletionTimestamp"):
            await self._end(self._jobs.get(uid), pod)
        elif uid not in self._jobs and is_waiting(pod):
            await self._take_in(pod)

    async def _end(self, job_id: JobId | None, pod: Object) -> None:
        """The job of a pod that goes: it cannot come again, whoever deleted it."""
        if job_id is None:
            return
        words = self._why_stopped(job_id)
        actor = OURSELVES if words else ACTOR
        await self._tell(pod, reason="Stopped", words=words)
        shell = self._desk.shell
        job = shell.kernel.job(job_id)
        if job is not None and not _is_cancelled(job):
            await shell.durable(shell.tell(JobCancelled(job.id, actor, words), actor=actor))

    def _why_stopped(self, job_id: JobId) -> str:
        """Why we took its place away, if we did: by now its job may be on its way back, or over."""
        for told in (entry.transition for entry in self._desk.store.story(job_id)):
            if told.after is State.STOPPING and told.cause != JobCancelled.__name__:
                return f"{told.reason}: {NOT_AGAIN}"
        return ""

    async def _take_in(self, pod: Object) -> None:
        meta = pod["metadata"]

        def claim(job_id: JobId) -> None:
            self._jobs[meta["uid"]] = job_id

        try:
            asked = asked_of(pod, gpu_resource=self._gpu_resource)
        except UserError as error:
            await self._tell(pod, reason="Refused", words=str(error))
            return
        try:
            await require_mountable(self._cluster, asked.claims)
            pod_id = f"{meta['name']}/{meta['uid']}"
            arrival = Arrival(claim=claim, pod=pod_id, tolerations=asked.tolerations)
            caller = Caller(asked.user or self._cluster.namespace)
            await self._desk.intake.take_in(caller, _request(meta["name"], asked), arrival=arrival)
        except (NotYetError, NotKeptError) as error:
            self._jobs.pop(meta["uid"], None)
            await self._put_off(pod, error)
        except UserError as error:
            self._not_yet[meta["uid"]] = None
            await self._tell(pod, reason="Refused", words=str(error))
        except BaseException:
            self._jobs.pop(meta["uid"], None)
            self._is_unsure = True
            raise

    # -- why they wait --------------------------------------------------------------------------

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for uid, job_id in list(self._jobs.items()):
                job, pod = self._desk.shell.kernel.job(job_id), self._pods.get(uid)
                if pod is not None and job is not None and isinstance(job.phase, Queued):
                    with self._bugs.of(job=job_id):
                        await self._tell(pod, reason="Waiting", words=self._desk.why(job))

    async def _tell(self, pod: Object, *, reason: str, words: str) -> None:
        uid, now = pod["metadata"]["uid"], asyncio.get_running_loop().time()
        told = self._told.get(uid)
        if not words or (told and told.words == words):
            return
        if told and told.reason == reason and now - told.at_s < QUIET_S:
            return
        self._told[uid] = _Told(reason, words, now)
        try:
            await self._resources.event(pod, kind=PODS, reason=reason, words=words)
        except ApiError as error:
            log.warning("an event was not told", error=str(error))


def _is_cancelled(job: Job) -> bool:
    return isinstance(job.phase, Stopping) and job.phase.purpose is Purpose.CANCEL


def _request(name: str, asked: Asked) -> JobRequest:
    return JobRequest(
        command=asked.command,
        name=name[:LONGEST_NAME],
        gpus=str(asked.gpus),
        gpus_per_worker=asked.gpus,
        cpus=asked.cpus,
        memory=str(asked.memory_bytes) if asked.memory_bytes else "",
        priority=asked.priority,
        node_labels=asked.node_labels,
    )
