"""The membership of each job's newest generation, and the events to the kernel about it.

A change of members is complete (event `MembershipChanged`) when the new members have joined
(`committed`) and the removed workers have exited. Live workers join here: each report contains the
worker's address and generation, and the response contains the generation to join. torchrun agents
join in `rendezvous`, which calls `committed`.

Everything is in memory. After a restart of the daemon the controller sends its commands again and
the workers report their state again; what they did meanwhile counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from rota.core.model.commands import ChangeMembership, Command, ReportWorkers, StartWorkers
from rota.core.model.events import (
    JobRemarked,
    MembershipChanged,
    NewcomersMissing,
    WorkerSlow,
    WorkersSilent,
)
from rota.core.model.job import Job, JobId, JobSpec, Mode, Running, Starting
from rota.daemon.elastic.generation_rules import DesiredGeneration
from rota.daemon.elastic.worker_group import WorkerGroup
from rota.daemon.runtime.controller import Controller
from rota.daemon.training.report_parser import WorkerReport
from rota.tasks import ErrorIsolation
from rota_trainer.reporting.messages import Switch

log = structlog.get_logger()

NOT_ELASTIC_REMARK = (
    "the job's mode is live, but its program does not use rota_trainer.torch.live: no worker can"
    " join, and the job keeps its size; submit it with --mode restart to have it resized"
)
LOOK_S = 1.0
"""How often workers are checked for missing reports."""


@dataclass(frozen=True, slots=True)
class GenerationRoster:
    """The workers of a job's newest generation, by rank. `held` are all workers that the job has
    now, including those that leave; `exits` are the exit codes of those that have ended."""

    generation: int
    numbers: tuple[int, ...]
    held: tuple[int, ...]
    exits: Mapping[int, int]

    def is_gone(self, number: int) -> bool:
        return number in self.exits or number not in self.held


def roster_of(job: Job | None) -> GenerationRoster | None:
    """The roster of a job; None while no workers should join: it is queued, stopping or ended."""
    match job:
        case Job(phase=Running(joining_numbers=numbers, exits=exits)) if numbers:
            return GenerationRoster(job.generation, numbers, job.numbers, exits)
        case Job(phase=Running(exits=exits) | Starting(exits=exits)):
            return GenerationRoster(job.generation, job.numbers, job.numbers, exits)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class LivenessPolicy:
    """What happens to workers that block the others: a worker without reports is killed after
    `heartbeat_s`, a slow worker is replaced only with `replaces_stragglers`."""

    heartbeat_s: float = 10.0
    replaces_stragglers: bool = False


DEFAULT_LIVENESS_POLICY = LivenessPolicy()


class MembershipListener(Protocol):
    """Passes news of a job to its workers."""

    def wake(self, job_id: JobId) -> None:
        """The workers of the job have a new order."""
        ...

    def remark(self, job_id: JobId, words: str) -> None:
        """Add a line to the log of the job."""
        ...


class MembershipService:
    def __init__(
        self,
        controller: Controller,
        listener: MembershipListener,
        *,
        clock: Callable[[], float],
        liveness: LivenessPolicy = DEFAULT_LIVENESS_POLICY,
    ) -> None:
        self._controller = controller
        self._listener = listener
        self._clock = clock
        self._liveness = liveness
        self._worker_groups: dict[JobId, WorkerGroup] = {}
        self._committed: dict[JobId, MembershipChanged] = {}
        """Formed generations whose removed workers have not exited yet."""
        self._checked_at_s = clock()
        self._isolation = ErrorIsolation("worker check failed", raises=())

    # -- commands of the controller -------------------------------------------------------------

    def on_command(self, command: Command) -> None:
        """Handle a command, after the transition that caused it is on disk. A repeated command
        changes nothing."""
        match command:
            case StartWorkers(job_id, attempt, generation, allocation):
                self._want(
                    job_id, DesiredGeneration(attempt, generation, tuple(range(len(allocation))))
                )
            case ChangeMembership(job_id, attempt, generation, _, workers):
                self._want(job_id, DesiredGeneration(attempt, generation, workers))
            case ReportWorkers(job_id, attempt):
                # After a restart of the daemon. If the members change, ChangeMembership follows.
                job = self._job(job_id, attempt)
                if job is not None and isinstance(job.phase, Running) and not job.phase.joining:
                    self._want(
                        job_id, DesiredGeneration(attempt, job.generation, job.phase.numbers)
                    )
            case _:
                pass

    def _want(self, job_id: JobId, wanted: DesiredGeneration) -> None:
        worker_group = self._worker_groups.get(job_id)
        if worker_group is None or worker_group.wanted.attempt != wanted.attempt:
            self._worker_groups[job_id] = WorkerGroup(wanted, since_s=self._clock())
        elif worker_group.wanted != wanted:
            worker_group.want(wanted)
        self._try_form(job_id)

    # -- reports and orders ---------------------------------------------------------------------

    def on_report(self, job: Job, report: WorkerReport) -> None:
        """Record a report of a worker of the current attempt."""
        worker_group = self._worker_groups.get(job.id)
        if (
            worker_group is not None
            and worker_group.wanted.attempt == job.attempt
            and report.address
        ):
            worker_group.record_report(report, now=self._clock())
            self._try_form(job.id)

    def orders(self, job_id: JobId, worker: int, *, attempt: int) -> tuple[Switch | None, str]:
        """The generation that a worker must join, if any, and the reason why it may not join."""
        worker_group = self._worker_groups.get(job_id)
        if worker_group is None or worker_group.wanted.attempt != attempt:
            return None, ""
        return worker_group.orders(worker)

    def steady_since_s(self, job: Job) -> float:
        """Since when the job has its present size; infinity while its members change."""
        if isinstance(job.phase, Running) and job.phase.joining:
            return math.inf
        worker_group = self._worker_groups.get(job.id)
        return -math.inf if worker_group is None else worker_group.changed_at_s

    def _try_form(self, job_id: JobId) -> None:
        worker_group = self._worker_groups[job_id]
        job = self._job(job_id, worker_group.wanted.attempt)
        if job is None:
            return
        if worker_group.gather(job):
            log.info("generation sent", job=job_id, generation=worker_group.wanted.generation)
            self._listener.wake(job_id)
        if worker_group.has_formed(job):
            wanted = worker_group.wanted
            self.committed(
                job_id,
                wanted.attempt,
                generation=wanted.generation,
                pause_s=worker_group.pause_s(job),
            )

    # -- events for the kernel ------------------------------------------------------------------

    def committed(
        self, job_id: JobId, attempt: int, *, generation: int, pause_s: float | None = None
    ) -> None:
        """All members of this generation have joined. A repeated call changes nothing."""
        self._committed[job_id] = MembershipChanged(job_id, attempt, generation, pause_s)
        self._settle(job_id)

    def _settle(self, job_id: JobId) -> None:
        fact = self._committed[job_id]
        job = self._job(job_id, fact.attempt)
        phase = None if job is None or job.generation != fact.generation else job.phase
        if not isinstance(phase, Running) or not phase.joining:
            del self._committed[job_id]
            return
        leavers = set(phase.numbers) - set(phase.joining_numbers)
        if leavers <= phase.exits.keys() and not self._controller.trouble:
            del self._committed[job_id]
            self._controller.apply_event(fact)

    # -- background task ------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: complete changes whose removed workers have exited, and check
        periodically for workers that block the others."""
        while True:
            # `asyncio.wait_for` loses a cancellation that comes with the change (Python 3.11).
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._controller.changed()
            for job_id in list(self._committed):
                with self._isolation.of(job=job_id):
                    self._settle(job_id)
            now = self._clock()
            if now - self._checked_at_s >= LOOK_S:
                self.check_workers(now)

    def check_workers(self, now: float) -> None:
        """Check all live jobs. If the daemon itself was suspended, missing reports are not the
        workers' fault, so their heartbeats are reset."""
        was_suspended = now - self._checked_at_s > self._liveness.heartbeat_s / 2
        self._checked_at_s = now
        for job_id, worker_group in list(self._worker_groups.items()):
            job = self._job(job_id, worker_group.wanted.attempt)
            if job is None or not job.is_active:
                del self._worker_groups[job_id]
                continue
            with self._isolation.of(job=job_id):
                if was_suspended:
                    worker_group.reset_heartbeats(now)
                if isinstance(job.phase, Running) and not self._controller.trouble:
                    self._check_job(job, worker_group, now=now)

    def _check_job(self, job: Job, worker_group: WorkerGroup, *, now: float) -> None:
        # A job that never reports membership, and whose members do not change, is not checked.
        if worker_group.states or job.numbers != worker_group.wanted.numbers:
            self._kill_blocking(job, worker_group, now=now)
        if job.spec.mode is Mode.LIVE:
            self._report_missing_newcomers(job, worker_group, now=now)
            self._remark_not_elastic(job, worker_group, now=now)

    def _kill_blocking(self, job: Job, worker_group: WorkerGroup, *, now: float) -> None:
        for reason, workers in worker_group.faults(
            job, now=now, heartbeat_s=self._liveness.heartbeat_s
        ).items():
            log.warning("workers killed", job=job.id, workers=sorted(workers), reason=reason)
            self._controller.apply_event(WorkersSilent(job.id, job.attempt, workers, reason))

    def _report_missing_newcomers(self, job: Job, worker_group: WorkerGroup, *, now: float) -> None:
        if missing := worker_group.missing(job, now=now):
            log.warning("new workers did not join", job=job.id, workers=sorted(missing))
            self._controller.apply_event(NewcomersMissing(job.id, job.attempt, missing))

    def _remark_not_elastic(self, job: Job, worker_group: WorkerGroup, *, now: float) -> None:
        if worker_group.is_not_elastic(job, now=now):
            self._controller.apply_event(JobRemarked(job.id, job.attempt, NOT_ELASTIC_REMARK))
            self._listener.remark(job.id, NOT_ELASTIC_REMARK)

    def replace_slow(self, job_id: JobId, worker: int, *, why: str) -> None:
        """Replace a slow worker, if `LivenessPolicy` allows it. If there is no free GPU for a
        replacement, the worker is killed, provided that the job can run with one worker less."""
        job = self._settled(job_id)
        if job is None or not self._liveness.replaces_stragglers or self._controller.trouble:
            return
        reason = f"{why}; it is replaced"
        self._controller.apply_event(WorkerSlow(job.id, job.attempt, worker, reason))
        job = self._settled(job_id)
        if job is None:
            return
        others = set(job.numbers) - {worker}
        if job.units_of(others) >= job.spec.min_workers:
            self._controller.apply_event(
                WorkersSilent(job.id, job.attempt, frozenset((worker,)), reason)
            )

    def _settled(self, job_id: JobId) -> Job | None:
        """The job, if it is a live job whose members do not change at the moment."""
        match self._controller.job(job_id):
            case Job(phase=Running(joining=()), spec=JobSpec(mode=Mode.LIVE)) as job:
                return job
            case _:
                return None

    def _job(self, job_id: JobId, attempt: int) -> Job | None:
        job = self._controller.job(job_id)
        return job if job is not None and job.attempt == attempt else None
