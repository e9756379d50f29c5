"""What is known of jobs while they train: the newest of each worker, in memory only."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from rota.core.commands import AskToStop
from rota.core.events import ProgressReported
from rota.core.model import Job
from rota.daemon.reports import Told
from rota.daemon.stragglers import REPORTS, slowness
from rota.store.records import Sample
from rota_trainer.messages import MOST_METRICS, MOST_RECORDS, Switch

FACT_EVERY_S = 10.0
"""How often the scheduler hears of progress within an epoch."""
SAMPLE_EVERY_S = 5.0
SAMPLE_LEAST_S = 1.0
"""Between two samples, however short the epochs are."""
PRESENT_S = 60.0
"""A worker that said nothing for so long does not speak for its job any more."""


class Given(NamedTuple):
    """What a worker is to do: stop, join a generation, or not to join."""

    stop: AskToStop | None = None
    switch: Switch | None = None
    refused: str = ""


NOTHING_GIVEN = Given()


@dataclass(slots=True)
class Trainee:
    """A worker, as of its newest report."""

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
    card_bytes: int = 0
    """What the driver says that its processes hold, which is all of it; 0 if it does not say."""
    start_s: float | None = None
    load_s: float | None = None
    save_s: float | None = None
    dropped: int = 0
    paces: deque[float] = field(default_factory=lambda: deque[float](maxlen=REPORTS))
    """Mean step times of its newest reports."""
    given: Given = NOTHING_GIVEN
    """What it was told to do."""

    def take(self, told: Told, *, now: float) -> dict[str, str]:
        """Bring it up to date; what made no sense beside what was told before, by its kind."""
        if told.sequence == 1 and self.sequence > 1:
            self._begin_again()
        elif told.sequence <= self.sequence:
            return {}
        self.sequence, self.heard_at_s = told.sequence, now
        self.hears = told.hears
        faults = self._advance(told)
        self.steps_done, self.steps_total = told.steps_done, told.steps_total
        self.memory_bytes = told.memory_bytes or self.memory_bytes
        self.gpu_memory_bytes = told.gpu_memory_bytes or self.gpu_memory_bytes
        self.start_s = self.start_s if told.start_s is None else told.start_s
        self.load_s = self.load_s if told.load_s is None else told.load_s
        self.save_s = self.save_s if told.save_s is None else told.save_s
        self.dropped = max(self.dropped, told.dropped)
        self._pace(told)
        for name, value in told.metrics.items():
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics[name] = value
        return faults

    @property
    def on_cards_bytes(self) -> int:
        """A program knows only what it asked for by itself."""
        return max(self.gpu_memory_bytes, self.card_bytes)

    @property
    def has_begun(self) -> bool:
        return bool(self.epochs_done or self.steps_done)

    def _begin_again(self) -> None:
        """The worker runs another program, which counts from the start."""
        self.epochs_done = self.epochs_saved = self.epochs_total = None
        self.paces.clear()

    def _advance(self, told: Told) -> dict[str, str]:
        faults: dict[str, str] = {}
        self.epochs_total = told.epochs_total or self.epochs_total
        if _is_back(self.epochs_done, told.epochs_done):
            words = _went_back("epochs_done", before=self.epochs_done, after=told.epochs_done)
            faults["epochs_done_back"] = words
        elif told.epochs_done is not None:
            self.epochs_done = told.epochs_done
        if _is_back(self.epochs_saved, told.epochs_saved):
            words = _went_back("epochs_saved", before=self.epochs_saved, after=told.epochs_saved)
            faults["epochs_saved_back"] = words
        elif told.epochs_saved is not None:
            self.epochs_saved = told.epochs_saved
        return faults

    def _pace(self, told: Told) -> None:
        count = sum(each.count for each in told.steps)
        seconds = sum(each.seconds for each in told.steps)
        if count:
            self.step_s = seconds / count
            # Who waits for the others in every step may know what it would take without them.
            self.paces.append(self.step_s if told.own_s is None else told.own_s)
            samples = sum(each.samples for each in told.steps)
            self.samples_per_s = samples / seconds if seconds else 0.0


def _total(job: Job, lead: Trainee, *, done: float) -> float | None:
    """How many epochs there will be, where the program says so; infinitely many where it counts
    them, and goes further than anybody said. None leaves it at what was known."""
    promised = job.spec.epochs if job.epochs_total is None else job.epochs_total
    if lead.epochs_total is not None or done <= 0 or 1 < promised >= done:
        return lead.epochs_total
    return math.inf


def _is_echo(job: Job, lead: Trainee) -> bool:
    """Whether it only repeats the whole epochs that it was handed, while it still builds its model
    and has not looked at its checkpoint: that may hold a part of an epoch more."""
    is_handed = lead.epochs_done == math.floor(job.epochs_saved) < job.epochs_saved
    return is_handed and lead.start_s is None and not lead.steps_done


def _is_back(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _went_back(name: str, *, before: float | None, after: float | None) -> str:
    return f"{name} went back from {before:g} to {after:g}, which makes no sense; {before:g} stays"


@dataclass(slots=True)
class Team:
    """The workers of one attempt of a job, and what was made of their reports."""

    attempt: int
    trainees: dict[int, Trainee] = field(default_factory=dict[int, Trainee])
    told_kinds: set[str] = field(default_factory=set[str])
    """Kinds of nonsense that the job's log names already."""
    order: AskToStop | None = None
    waiting: dict[int, asyncio.Future[None]] = field(
        default_factory=dict[int, asyncio.Future[None]]
    )
    """Workers whose reports are answered when there is an order."""
    epochs_s: list[float] = field(default_factory=list[float])
    """How long epochs took that the scheduler has not heard of."""
    notes: list[str] = field(default_factory=list[str])
    """Words for the job's log that no report was answered with yet."""
    fact: ProgressReported | None = None
    """What the scheduler was told last."""
    saved: float | None = None
    """What was said to be saved then."""
    fact_at_s: float = 0.0
    sample_at_s: float = 0.0

    def lead(self, numbers: Iterable[int], *, now: float) -> Trainee | None:
        """Who speaks for the job: the worker of the lowest rank among those that report."""
        present = (self.trainees.get(number) for number in numbers)
        return next((one for one in present if one and one.heard_at_s > now - PRESENT_S), None)

    def note_epochs(self, told: Told, *, since_s: float = -math.inf) -> None:
        """How long those took that began after `since_s`: before, the job had another size."""
        room = MOST_RECORDS - len(self.epochs_s)
        begun = [each for each in told.epochs if each.at_s - each.seconds >= since_s]
        self.epochs_s += [each.seconds for each in begun][:room]

    def next_fact(self, job: Job, lead: Trainee, *, now: float) -> ProgressReported | None:
        """What the scheduler has to hear now, if anything: the end of an epoch, something saved,
        that the program hears us; other progress now and then."""
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
            # A program that has not found its checkpoint yet does not mean to start from nothing.
            done, saved = job.epochs_done, job.epochs_saved
        return ProgressReported(
            job.id,
            job.attempt,
            done,
            epoch_s=fmean(self.epochs_s) if self.epochs_s else None,
            memory_bytes=max(each.on_cards_bytes for each in self.trainees.values()),
            saved=saved,
            hears=lead.hears,
            epochs_total=_total(job, lead, done=done),
            start_s=None if lead.start_s is None else lead.start_s + (lead.load_s or 0.0),
            save_s=lead.save_s,
            load_s=lead.load_s,
        )

    def has_told(self, fact: ProgressReported, lead: Trainee, *, now: float) -> None:
        self.fact, self.saved, self.fact_at_s = fact, lead.epochs_saved, now
        self.epochs_s.clear()

    def sample(self, job: Job, lead: Trainee, *, now: float) -> Sample | None:
        """A point for the charts, if it is time for one."""
        wait_s = SAMPLE_LEAST_S if self.epochs_s else SAMPLE_EVERY_S
        if not lead.has_begun or now - self.sample_at_s < wait_s:
            return None
        self.sample_at_s = now
        return Sample(
            job.id,
            job.attempt,
            now,
            worker=lead.worker,
            workers=len(job.allocation),
            epochs_done=lead.epochs_done or 0.0,
            step_s=lead.step_s,
            samples_per_s=lead.samples_per_s,
            memory_bytes=lead.memory_bytes,
            gpu_memory_bytes=lead.on_cards_bytes,
            metrics=dict(lead.metrics),
        )

    def slow(self) -> dict[int, float]:
        """Workers that hold the others up -> how many times as long their steps take."""
        return slowness({each.worker: tuple(each.paces) for each in self.trainees.values()})

    def news(self, faults: Mapping[str, str]) -> list[str]:
        """Those that the job has not been told of in this attempt."""
        kinds = [kind for kind in faults if kind not in self.told_kinds]
        self.told_kinds.update(kinds)
        return [faults[kind] for kind in kinds]

    def wait(self, worker: int, answer: asyncio.Future[None]) -> None:
        """A worker waits for one answer: whoever asks again has given up the one before."""
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
        """Those who left are nobody's peers any more."""
        kept = set(numbers)
        for number in [number for number in self.trainees if number not in kept]:
            del self.trainees[number]
