"""What is measured while jobs train, on its way into the store: a little at a time."""

from __future__ import annotations

from collections import deque

from rota.core.model import Job
from rota.core.speed import SpeedModel
from rota.daemon.shell import Shell
from rota.store.records import Profile, Sample

PROFILE_EVERY_S = 30.0
"""How often what a category measured is written down, at most."""
MOST_SAMPLES = 5_000
"""That wait for a store that cannot be written; the oldest go."""


class Measurements:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._speeds: dict[str, SpeedModel] = {}
        """What categories measured since it was written down."""
        self._written_s: dict[str, float] = {}

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def learn(self, job: Job) -> None:
        if job.spec.category and job.speed.measured:
            self._speeds[job.spec.category] = job.speed

    def write(self, *, now: float, all_of_it: bool = False) -> None:
        """In one batch, and without waiting for it: nobody's answer rests upon this."""
        if self._shell.trouble:
            return
        due = [
            category
            for category in self._speeds
            if all_of_it or now - self._written_s.get(category, 0.0) >= PROFILE_EVERY_S
        ]
        profiles = [Profile(category, self._speeds.pop(category), now) for category in due]
        self._written_s = {
            category: at_s
            for category, at_s in self._written_s.items()
            if now - at_s < PROFILE_EVERY_S
        } | dict.fromkeys(due, now)
        if profiles or self._samples:
            self._shell.put(*profiles, samples=tuple(self._samples))
            self._samples.clear()
