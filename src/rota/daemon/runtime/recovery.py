"""Reads the state from which a kernel continues after a restart or a crash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rota.core.estimation.speed_model import SpeedModel
from rota.core.kernel.kernel import Kernel
from rota.core.model.effects import Effects
from rota.core.model.job import Job
from rota.core.model.node import Node
from rota.daemon.runtime.lost_jobs import LostJobs, StartRecords, find_lost
from rota.store.interface import Store
from rota.store.records import ProfileRecord, SavedState, UsageRecord

NOTHING_LOST = LostJobs()


@dataclass(frozen=True, slots=True)
class RecoveredState:
    saved: SavedState
    speeds: dict[str, SpeedModel]
    """Speed models by category, the newest last."""
    usage: tuple[UsageRecord, ...] = ()

    lost: LostJobs = NOTHING_LOST

    def restore(self, kernel: Kernel, *, seen: Iterable[Node], now: float) -> Effects:
        """`seen` are the nodes of the engine. A job that the store has lost may hold GPUs of a node
        that it has lost, too."""
        saved = self.saved
        nodes = {node.id: node for node in seen} if self.lost.jobs else {}
        nodes |= {node.id: node for node in saved.nodes}
        return kernel.recover(
            [*self._stored_jobs(), *self.lost.jobs],
            nodes.values(),
            outcomes=saved.outcomes,
            now=now,
            speeds=self.speeds,
        )

    @property
    def jobs(self) -> Iterator[Job]:
        """The jobs that are not over, as far as they are known."""
        yield from (each.job for each in self.lost.jobs)
        yield from self._stored_jobs()

    def _stored_jobs(self) -> Iterator[Job]:
        adopted = {each.job.id for each in self.lost.jobs}
        return (job for job in self.saved.jobs if job.id not in adopted)


def read_state(store: Store, records: StartRecords) -> RecoveredState:
    profiles = sorted(store.rows(ProfileRecord), key=lambda each: each.updated_s)
    speeds = {each.category: each.speed for each in profiles}
    saved, usage = store.load(), tuple(store.rows(UsageRecord))
    return RecoveredState(saved, speeds, usage, find_lost(saved, store, records=records))
