"""The progress of running attempts, from the newest report of each worker. In memory only.

`WorkerProgress` is one worker, `AttemptProgress` all workers of one attempt. The attempt decides
when the kernel gets a `ProgressReported` event and when a sample is recorded.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from rota.core.model.commands import AskToStop
from rota.core.model.events import ProgressReported
from rota.core.model.job import Job, JobId
from rota.daemon.training.report_parser import WorkerReport
from rota.daemon.training.stragglers import REPORTS, slowness
from rota.store.records import SampleRecord
from rota_trainer.reporting.messages import MOST_METRICS, MOST_RECORDS, Switch

FACT_EVERY_S = 10.0
"""How often the kernel gets an event about progress within an epoch."""
SAMPLE_EVERY_S = 5.0
SAMPLE_LEAST_S = 1.0
"""The shortest time between two samples, also if epochs are shorter."""
PRESENT_S = 60.0
"""A worker without a report for this time cannot be the lead worker of its job."""


class WorkerOrders(NamedTuple):
    """The orders for a worker: stop, switch to a generation, or the reason why it may not join."""

    stop: AskToStop | None = None
    switch: Switch | None = None
    refused: str = ""


NO_ORDERS = WorkerOrders()


@dataclass(slots=True)
class WorkerProgress:
    """The progress of one worker, as of its newest report."""

    worker: int
    heard_at_s: float = 0.0
    sequence: int = 0
    hears: bool = False
    epochs_done: float | None = None
    epochs_total: float | None = None
    epochs_saved: float | None = None
    steps_done: int = 0
    steps_total: int | None = None
    step_s: float = 0.0
    samples_per_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    driver_gpu_bytes: int = 0
    """The GPU memory of its processes according to the driver; 0 if unknown."""
    start_s: float | None = None
    load_s: float | None = None
    save_s: float | None = None
    dropped: int = 0
    paces: deque[float] = field(default_factory=lambda: deque[float](maxlen=REPORTS))
    """The mean step times of its newest reports."""
    sent_orders: WorkerOrders = NO_ORDERS
    """The orders of the last response."""

    def update(self, report: WorkerReport, *, now: float) -> dict[str, str]:
        """Apply a report; returns the values that contradict earlier reports, as faults by kind.
        Duplicates and old reports are ignored."""
        if report.sequence == 1 and self.sequence > 1:
            self._reset()
        elif report.sequence <= self.sequence:
            return {}
        self.sequence, self.heard_at_s = report.sequence, now
        self.hears = report.hears
        faults = self._advance(report)
        self.steps_done, self.steps_total = report.steps_done, report.steps_total
        self.memory_bytes = report.memory_bytes or self.memory_bytes
        self.gpu_memory_bytes = report.gpu_memory_bytes or self.gpu_memory_bytes
        self.start_s = self.start_s if report.start_s is None else report.start_s
        self.load_s = self.load_s if report.load_s is None else report.load_s
        self.save_s = self.save_s if report.save_s is None else report.save_s
        self.dropped = max(self.dropped, report.dropped)
        self._pace(report)
        for name, value in report.metrics.items():
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics[name] = value
        return faults

    @property
    def gpu_bytes_held(self) -> int:
        """The larger one: a program reports only the memory that it allocated itself."""
        return max(self.gpu_memory_bytes, self.driver_gpu_bytes)

    @property
    def has_begun(self) -> bool:
        return bool(self.epochs_done or self.steps_done)

    def _reset(self) -> None:
        """The worker runs a new program, which counts from the start."""
        self.epochs_done = self.epochs_saved = self.epochs_total = None
        self.paces.clear()

    def _advance(self, report: WorkerReport) -> dict[str, str]:
        faults: dict[str, str] = {}
        self.epochs_total = report.epochs_total or self.epochs_total
        if _is_back(self.epochs_done, report.epochs_done):
            faults["epochs_done_back"] = _decreased(
                "epochs_done", before=self.epochs_done, after=report.epochs_done
            )
        elif report.epochs_done is not None:
            self.epochs_done = report.epochs_done
        if _is_back(self.epochs_saved, report.epochs_saved):
            faults["epochs_saved_back"] = _decreased(
                "epochs_saved", before=self.epochs_saved, after=report.epochs_saved
            )
        elif report.epochs_saved is not None:
            self.epochs_saved = report.epochs_saved
        return faults

    def _pace(self, report: WorkerReport) -> None:
        count = sum(each.count for each in report.steps)
        seconds = sum(each.seconds for each in report.steps)
        if count:
            self.step_s = seconds / count
            # A data-parallel worker waits for the others in every step; `own_s` excludes this wait.
            self.paces.append(self.step_s if report.own_s is None else report.own_s)
            samples = sum(each.samples for each in report.steps)
            self.samples_per_s = samples / seconds if seconds else 0.0


def _total(job: Job, lead: WorkerProgress, *, done: float) -> float | None:
    """The total number of epochs, if the program reports it; infinity if the program has passed the
    expected number. None means that the expected number is kept."""
    promised = job.spec.epochs if job.epochs_total is None else job.epochs_total
    if lead.epochs_total is not None or done <= 0 or 1 < promised >= done:
        return lead.epochs_total
    return math.inf


def _is_echo(job: Job, lead: WorkerProgress) -> bool:
    """Whether the report only repeats the whole epochs that the worker got in its environment. The
    worker has then not loaded its checkpoint yet, which may be further by a part of an epoch."""
    is_handed = lead.epochs_done == math.floor(job.epochs_saved) < job.epochs_saved
    return is_handed and lead.start_s is None and not lead.steps_done


def _is_back(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _decreased(name: str, *, before: float | None, after: float | None) -> str:
    return f"{name} decreased from {before:g} to {after:g}; {before:g} is kept"


@dataclass(slots=True)
class AttemptProgress:
    """The workers of one attempt of a job, and what the kernel knows of their reports."""

    attempt: int
    by_worker: dict[int, WorkerProgress] = field(default_factory=dict[int, WorkerProgress])
    noted_kinds: set[str] = field(default_factory=set[str])
    """The kinds of faults that are in the job's log already."""
    order: AskToStop | None = None
    waiting: dict[int, asyncio.Future[None]] = field(
        default_factory=dict[int, asyncio.Future[None]]
    )
    """Worker -> the future of its held request."""
    epochs_s: list[float] = field(default_factory=list[float])
    """The durations of finished epochs that the kernel does not know yet."""
    notes: list[str] = field(default_factory=list[str])
    """Lines for the job's log that were not sent yet."""
    fact: ProgressReported | None = None
    """The last event to the kernel."""
    saved: float | None = None
    """The reported `epochs_saved` at the last event."""
    fact_at_s: float = 0.0
    sample_at_s: float = 0.0

    def lead(self, numbers: Iterable[int], *, now: float) -> WorkerProgress | None:
        """The lead worker, whose reports count for the job: the lowest rank that reports."""
        present = (self.by_worker.get(number) for number in numbers)
        return next((one for one in present if one and one.heard_at_s > now - PRESENT_S), None)

    def add_epochs(self, report: WorkerReport, *, since_s: float = -math.inf) -> None:
        """Keep the durations of epochs that began after `since_s`, when the job got its present
        size."""
        room = MOST_RECORDS - len(self.epochs_s)
        begun = [each for each in report.epochs if each.at_s - each.seconds >= since_s]
        self.epochs_s += [each.seconds for each in begun][:room]

    def next_fact(self, job: Job, lead: WorkerProgress, *, now: float) -> ProgressReported | None:
        """The event that the kernel needs now, if any: at the end of an epoch, after a save, when
        the program starts to accept stop requests, and periodically."""
        is_due = (
            self.fact is None
            or bool(self.epochs_s)
            or math.floor(lead.epochs_done or 0.0) > math.floor(self.fact.epochs_done)
            or lead.epochs_saved != self.saved
            or (lead.hears and not self.fact.hears)
            or now - self.fact_at_s >= FACT_EVERY_S
        )
        if not is_due or _is_echo(job, lead):
            return None
        done, saved = lead.epochs_done, lead.epochs_saved
        if done is None or not lead.has_begun:
            # Before the program has loaded its checkpoint, the stored progress counts.
            done, saved = job.epochs_done, job.epochs_saved
        return ProgressReported(
            job.id,
            job.attempt,
            done,
            epoch_s=fmean(self.epochs_s) if self.epochs_s else None,
            memory_bytes=max(each.gpu_bytes_held for each in self.by_worker.values()),
            saved=saved,
            hears=lead.hears,
            epochs_total=_total(job, lead, done=done),
            start_s=None if lead.start_s is None else lead.start_s + (lead.load_s or 0.0),
            save_s=lead.save_s,
            load_s=lead.load_s,
        )

    def record_sent(self, fact: ProgressReported, lead: WorkerProgress, *, now: float) -> None:
        self.fact, self.saved, self.fact_at_s = fact, lead.epochs_saved, now
        self.epochs_s.clear()

    def sample(self, job: Job, lead: WorkerProgress, *, now: float) -> SampleRecord | None:
        """A sample for the charts, if one is due."""
        wait_s = SAMPLE_LEAST_S if self.epochs_s else SAMPLE_EVERY_S
        if not lead.has_begun or now - self.sample_at_s < wait_s:
            return None
        self.sample_at_s = now
        return SampleRecord(
            job.id,
            job.attempt,
            now,
            worker=lead.worker,
            workers=job.units,
            epochs_done=lead.epochs_done or 0.0,
            step_s=lead.step_s,
            samples_per_s=lead.samples_per_s,
            memory_bytes=lead.memory_bytes,
            gpu_memory_bytes=lead.gpu_bytes_held,
            metrics=dict(lead.metrics),
        )

    def slow(self) -> dict[int, float]:
        """Straggler -> how many times longer than usual its steps take."""
        return slowness({each.worker: tuple(each.paces) for each in self.by_worker.values()})

    def new_notes(self, faults: Mapping[str, str]) -> list[str]:
        """The faults of kinds that are not in the job's log yet in this attempt."""
        kinds = [kind for kind in faults if kind not in self.noted_kinds]
        self.noted_kinds.update(kinds)
        return [faults[kind] for kind in kinds]

    def wait(self, worker: int, answer: asyncio.Future[None]) -> None:
        """Hold a request. A worker has one held request: a new one releases the previous one."""
        self._answer(self.waiting.get(worker))
        self.waiting[worker] = answer

    def stop_waiting(self, worker: int, answer: asyncio.Future[None]) -> None:
        if self.waiting.get(worker) is answer:
            del self.waiting[worker]

    def answer_all(self) -> None:
        for answer in self.waiting.values():
            self._answer(answer)

    @staticmethod
    def _answer(answer: asyncio.Future[None] | None) -> None:
        if answer is not None and not answer.done():
            answer.set_result(None)

    def keep_only(self, numbers: Iterable[int]) -> None:
        """Remove the progress of workers that have left the job."""
        kept = set(numbers)
        for number in [number for number in self.by_worker if number not in kept]:
            del self.by_worker[number]


class RunningAttempts(dict[JobId, AttemptProgress]):
    """The attempts whose workers report, by job. Satisfies `elastic.membership`'s listener."""

    def wake(self, job_id: JobId) -> None:
        """Answer all waiting reports of a job."""
        if attempt := self.get(job_id):
            attempt.answer_all()

    def remark(self, job_id: JobId, words: str) -> None:
        """Add a line to the log of a job, if its program reports."""
        if attempt := self.get(job_id):
            attempt.notes.append(words)
