"""Reads the state from which a kernel continues after a restart or a crash."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.estimation.speed_model import SpeedModel
from rota.core.kernel.kernel import Kernel
from rota.core.model.effects import Effects
from rota.store.interface import Store
from rota.store.records import ProfileRecord, SavedState, UsageRecord


@dataclass(frozen=True, slots=True)
class RecoveredState:
    saved: SavedState
    speeds: dict[str, SpeedModel]
    """Speed models by category, the newest last."""
    usage: tuple[UsageRecord, ...] = ()

    def restore(self, kernel: Kernel, *, now: float) -> Effects:
        saved = self.saved
        return kernel.recover(
            saved.jobs, saved.nodes, outcomes=saved.outcomes, now=now, speeds=self.speeds
        )


def read_state(store: Store) -> RecoveredState:
    profiles = sorted(store.rows(ProfileRecord), key=lambda each: each.updated_s)
    speeds = {each.category: each.speed for each in profiles}
    return RecoveredState(store.load(), speeds, tuple(store.rows(UsageRecord)))
