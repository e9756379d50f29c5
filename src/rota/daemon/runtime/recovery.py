"""What a kernel goes on from after a crash: all that was written down."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.effects import Effects
from rota.core.kernel import Kernel
from rota.core.speed import SpeedModel
from rota.store.base import Store
from rota.store.records import Profile, Saved, Usage


@dataclass(frozen=True, slots=True)
class Written:
    saved: Saved
    speeds: dict[str, SpeedModel]
    """What categories measured; the one that learnt last comes last."""
    usage: tuple[Usage, ...] = ()

    def restore(self, kernel: Kernel, *, now: float) -> Effects:
        saved = self.saved
        return kernel.recover(
            saved.jobs, saved.nodes, outcomes=saved.outcomes, now=now, speeds=self.speeds
        )


def read(store: Store) -> Written:
    profiles = sorted(store.rows(Profile), key=lambda each: each.updated_s)
    speeds = {each.category: each.speed for each in profiles}
    return Written(store.load(), speeds, tuple(store.rows(Usage)))
