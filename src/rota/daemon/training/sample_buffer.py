"""Buffers measurements of training jobs (samples, category profiles) and writes them in batches."""

from __future__ import annotations

from collections import deque

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.job import Job
from rota.daemon.runtime.controller import Controller
from rota.store.records import ProfileRecord, SampleRecord

PROFILE_EVERY_S = 30.0
"""The shortest time between two writes of the profile of one category."""
MOST_SAMPLES = 5_000
"""How many samples wait while the store cannot be written; the oldest ones are dropped."""


class SampleBuffer:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._samples: deque[SampleRecord] = deque(maxlen=MOST_SAMPLES)
        self._speeds: dict[str, SpeedModel] = {}
        """Category -> its newest speed model that is not written yet."""
        self._written_s: dict[str, float] = {}

    def add(self, sample: SampleRecord) -> None:
        self._samples.append(sample)

    def learn(self, job: Job) -> None:
        if job.spec.category and job.speed.measured:
            self._speeds[job.spec.category] = job.speed

    def write(self, *, now: float, all_of_it: bool = False) -> None:
        """Write everything that is due in one batch, without waiting for the commit."""
        if self._controller.trouble:
            return
        due = [
            category
            for category in self._speeds
            if all_of_it or now - self._written_s.get(category, 0.0) >= PROFILE_EVERY_S
        ]
        profiles = [ProfileRecord(category, self._speeds.pop(category), now) for category in due]
        self._written_s = {
            category: at_s
            for category, at_s in self._written_s.items()
            if now - at_s < PROFILE_EVERY_S
        } | dict.fromkeys(due, now)
        if profiles or self._samples:
            self._controller.put(*profiles, samples=tuple(self._samples))
            self._samples.clear()
