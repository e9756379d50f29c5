"""What the jobs of each category measured, for the next one of it. A job begins with all that was
known, so that the one that learnt last knows most."""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.model import Job
from rota.core.speed import SpeedModel

MOST_CATEGORIES = 10_000
"""Without a name, every program is a category of its own: the one unheard of for the longest time
is forgotten."""


class Categories:
    def __init__(self) -> None:
        self._speeds: dict[str, SpeedModel] = {}

    @property
    def speeds(self) -> Mapping[str, SpeedModel]:
        """The one that learnt last comes last."""
        return self._speeds

    def restore(self, speeds: Mapping[str, SpeedModel]) -> None:
        self._speeds.update(speeds)

    def learn_from(self, job: Job) -> None:
        category = job.spec.category
        if not category or not job.speed.measured:
            return
        self._speeds.pop(category, None)
        self._speeds[category] = job.speed
        if len(self._speeds) > MOST_CATEGORIES:
            del self._speeds[next(iter(self._speeds))]
