"""The speed model of each job category, for the next job of that category.

A job starts with its category's model, so the job that measured last has the most complete model.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.job import Job

MAX_CATEGORIES = 10_000
"""A job without a category name has a category of its own. Beyond this number, the category that
was not measured for the longest time is forgotten."""


class CategoryProfiles:
    """Speed models by category."""

    def __init__(self) -> None:
        self._speeds: dict[str, SpeedModel] = {}

    @property
    def speeds(self) -> Mapping[str, SpeedModel]:
        """All models; the most recently measured one comes last."""
        return self._speeds

    def restore(self, speeds: Mapping[str, SpeedModel]) -> None:
        """Add stored models after a restart."""
        self._speeds.update(speeds)

    def learn_from(self, job: Job) -> None:
        """Replace the category's model by the job's, if the job has measured anything."""
        category = job.spec.category
        if not category or not job.speed.measured:
            return
        self._speeds.pop(category, None)
        self._speeds[category] = job.speed
        if len(self._speeds) > MAX_CATEGORIES:
            del self._speeds[next(iter(self._speeds))]
