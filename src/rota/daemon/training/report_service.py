"""Receives the progress reports of workers and answers them with orders.

The response to a report is held until there is an order for the worker, or until the worker's
`wait_s` have passed (a long poll), so that an order arrives immediately. Reports update the
progress of the attempt; the kernel gets an event when it needs to know (`AttemptProgress`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from rota.core.model.commands import AskToStop, Command
from rota.core.model.events import JobRemarked
from rota.core.model.job import Job, JobId
from rota.daemon.access.authorization import Caller, require_job_token
from rota.daemon.elastic.membership import MembershipService
from rota.daemon.runtime.controller import Controller
from rota.daemon.training.gpu_memory import GpuMemoryMonitor
from rota.daemon.training.report_parser import WorkerReport, parse_report
from rota.daemon.training.sample_buffer import SampleBuffer
from rota.daemon.training.worker_progress import (
    AttemptProgress,
    RunningAttempts,
    WorkerOrders,
    WorkerProgress,
)
from rota.errors import RotaError
from rota.tasks import ErrorIsolation
from rota_trainer.reporting.messages import Orders

log = structlog.get_logger()

LONGEST_WAIT_S = 30.0
TIDY_S = 2.0
"""How often samples are written, slow workers are searched, and ended jobs are removed."""


class ReportService:
    def __init__(
        self,
        controller: Controller,
        membership: MembershipService,
        *,
        attempts: RunningAttempts,
        gpu_memory: GpuMemoryMonitor,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._membership = membership
        self._clock = clock
        self._attempts = attempts
        self._sample_buffer = SampleBuffer(controller)
        self._gpu_memory = gpu_memory
        self._is_shutting_down = False
        self._isolation = ErrorIsolation("training clean-up failed")

    # -- reports --------------------------------------------------------------------------------

    async def report(self, caller: Caller, raw: object) -> Orders:
        """Record a report; wait for an order for the time that the worker requests."""
        job = self._job(caller)
        now = self._clock()
        report = parse_report(raw, now=now)
        attempt_progress = self._attempt_progress(job.id, job.attempt)
        if report.worker not in job.numbers:
            unknown = f"report of worker {report.worker} ignored: this job has no such worker"
            return Orders(notes=attempt_progress.new_notes({"worker": unknown}))
        worker_progress = attempt_progress.by_worker.setdefault(
            report.worker, WorkerProgress(report.worker)
        )
        before = worker_progress.sequence
        faults = report.faults | worker_progress.update(report, now=now)
        worker_progress.driver_gpu_bytes = self._gpu_memory.held_bytes(
            job.id, job.attempt, worker=report.worker
        )
        if worker_progress.sequence != before:
            self._membership.on_report(job, report)
            self._record(job, attempt_progress, report=report, now=now)
        notes = attempt_progress.new_notes(faults)
        await self._wait(
            job.id,
            attempt_progress,
            worker_progress=worker_progress,
            wait_s=min(report.wait_s, LONGEST_WAIT_S),
        )
        return self._orders(job.id, attempt_progress, worker_progress=worker_progress, notes=notes)

    def _job(self, caller: Caller) -> Job:
        return require_job_token(
            caller,
            self._controller.job,
            action="report its progress",
            hint="use rota_trainer in the job's program: it reads the token from ROTA_TOKEN",
        )

    def _attempt_progress(self, job_id: JobId, attempt: int) -> AttemptProgress:
        known = self._attempts.get(job_id)
        if known is None or known.attempt != attempt:
            self._forget(job_id)
            known = self._attempts[job_id] = AttemptProgress(attempt)
        return known

    def _record(
        self, job: Job, attempt_progress: AttemptProgress, *, report: WorkerReport, now: float
    ) -> None:
        """Send the kernel an event if it needs one, and keep samples. While the store cannot be
        written, no event is sent; a later report makes up for it."""
        lead = attempt_progress.lead(job.numbers, now=now)
        if lead is None or lead.worker != report.worker:
            return
        attempt_progress.add_epochs(report, since_s=self._membership.steady_since_s(job))
        sample = attempt_progress.sample(job, lead, now=now)
        if sample is not None:
            self._sample_buffer.add(sample)
        fact = attempt_progress.next_fact(job, lead, now=now)
        if fact is not None and not self._controller.trouble:
            self._controller.apply_event(fact)
            attempt_progress.record_sent(fact, lead, now=now)
            if fact.epoch_s is not None:
                self._sample_buffer.learn(self._controller.job(job.id) or job)

    # -- orders ---------------------------------------------------------------------------------

    def on_command(self, command: Command) -> None:
        """Handle a command of the controller: a stop request wakes the workers that wait. A
        repeated command changes nothing."""
        if not isinstance(command, AskToStop):
            return
        job = self._controller.job(command.job_id)
        if job is None or job.attempt != command.attempt:
            return
        attempt_progress = self._attempt_progress(command.job_id, command.attempt)
        attempt_progress.order = command
        attempt_progress.answer_all()

    async def _wait(
        self,
        job_id: JobId,
        attempt_progress: AttemptProgress,
        *,
        worker_progress: WorkerProgress,
        wait_s: float,
    ) -> None:
        has_new_orders = (
            self._orders_for(job_id, attempt_progress, worker=worker_progress.worker)
            != worker_progress.sent_orders
        )
        if has_new_orders or wait_s <= 0 or self._is_shutting_down:
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        attempt_progress.wait(worker_progress.worker, answer)
        await asyncio.wait([answer], timeout=wait_s)
        attempt_progress.stop_waiting(worker_progress.worker, answer)

    def _orders_for(
        self, job_id: JobId, attempt_progress: AttemptProgress, *, worker: int
    ) -> WorkerOrders:
        stop = (
            attempt_progress.order
            if attempt_progress.order and worker in attempt_progress.order.workers
            else None
        )
        return WorkerOrders(
            stop, *self._membership.orders(job_id, worker, attempt=attempt_progress.attempt)
        )

    def _orders(
        self,
        job_id: JobId,
        attempt_progress: AttemptProgress,
        *,
        worker_progress: WorkerProgress,
        notes: list[str],
    ) -> Orders:
        if worker_progress.worker == min(attempt_progress.by_worker, default=None):
            notes += attempt_progress.notes
            attempt_progress.notes.clear()
        orders = worker_progress.sent_orders = self._orders_for(
            job_id, attempt_progress, worker=worker_progress.worker
        )
        stop, insists_in_s = "", None
        if orders.stop is not None:
            stop = orders.stop.reason or "the GPUs are needed"
            insists_in_s = max(0.0, orders.stop.insists_at_s - self._clock())
        return Orders(stop, insists_in_s, notes, orders.switch, orders.refused)

    def release_waiters(self) -> None:
        """Answer all held requests; the daemon is shutting down."""
        self._is_shutting_down = True
        for attempt_progress in self._attempts.values():
            attempt_progress.answer_all()

    # -- queries --------------------------------------------------------------------------------

    def workers(self, job_id: JobId) -> Sequence[WorkerProgress]:
        """The workers of a job that report, by number."""
        attempt_progress = self._attempts.get(job_id)
        return (
            []
            if attempt_progress is None
            else [one for _, one in sorted(attempt_progress.by_worker.items())]
        )

    def slow_workers(self, job_id: JobId) -> dict[int, float]:
        """Worker that slows the others down -> how many times longer than usual its steps take."""
        attempt_progress = self._attempts.get(job_id)
        return {} if attempt_progress is None else attempt_progress.slow()

    # -- background task ------------------------------------------------------------------------

    async def run(self) -> None:
        """Clean up periodically until cancelled; then write the remaining samples."""
        try:
            while True:
                await asyncio.sleep(TIDY_S)
                try:
                    self._tidy()
                except RotaError as error:
                    log.warning("samples not written", error=str(error))
        finally:
            self._sample_buffer.write(now=self._clock(), all_of_it=True)

    def _tidy(self) -> None:
        with self._isolation.of():
            self._sample_buffer.write(now=self._clock())
        for job_id, attempt_progress in list(self._attempts.items()):
            with self._isolation.of(job=job_id):
                self._tidy_job(job_id, attempt_progress)

    def _tidy_job(self, job_id: JobId, attempt_progress: AttemptProgress) -> None:
        job = self._controller.job(job_id)
        if job is None or not job.is_active or job.attempt != attempt_progress.attempt:
            self._forget(job_id)
        else:
            attempt_progress.keep_only(job.numbers)
            self._report_stragglers(job_id, attempt_progress)

    def _report_stragglers(self, job_id: JobId, attempt_progress: AttemptProgress) -> None:
        """Report each slow worker once per attempt: in the job's log and story, and in the daemon's
        log."""
        for worker, times in attempt_progress.slow().items():
            text = (
                f"worker {worker} is slow: its steps take {times:.3g} times as long as the others'"
            )
            if attempt_progress.new_notes({f"slow {worker}": text}):
                attempt_progress.notes.append(text)
                log.info("worker is slow", job=job_id, worker=worker, times=round(times, 2))
                if not self._controller.trouble:
                    self._controller.apply_event(
                        JobRemarked(job_id, attempt_progress.attempt, text)
                    )
                self._membership.replace_slow(job_id, worker, why=text)

    def _forget(self, job_id: JobId) -> None:
        attempt_progress = self._attempts.pop(job_id, None)
        if attempt_progress is not None:
            attempt_progress.answer_all()
