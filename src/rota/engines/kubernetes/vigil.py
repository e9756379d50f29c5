"""Who waits too long: pods that the scheduler cannot place, or that cannot start."""

from __future__ import annotations

from dataclasses import dataclass

from rota.engines.base import WorkerId
from rota.engines.kubernetes.endings import CANNOT_RUN, Ending, Trouble
from rota.engines.kubernetes.settings import KubernetesSettings


@dataclass(frozen=True, slots=True)
class _Seen:
    trouble: Trouble
    since_s: float


class Vigil:
    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._seen: dict[WorkerId, _Seen] = {}

    def see(self, worker: WorkerId, trouble: Trouble | None, *, now: float) -> None:
        """What keeps it from starting, as of now. What it is called may change on the way; how
        long it has lasted does not."""
        if trouble is None:
            self._seen.pop(worker, None)
            return
        known = self._seen.get(worker)
        is_same = known is not None and known.trouble.is_race == trouble.is_race
        since_s = known.since_s if known is not None and is_same else now
        self._seen[worker] = _Seen(trouble, since_s)

    def verdicts(self, now: float) -> dict[WorkerId, Ending]:
        """On those whose time is up. Each is given once."""
        late = {
            worker: self._verdict(seen.trouble)
            for worker, seen in self._seen.items()
            if now - seen.since_s >= self._patience_s(seen.trouble)
        }
        for worker in late:
            del self._seen[worker]
        return late

    def _patience_s(self, trouble: Trouble) -> float:
        settings = self._settings
        return settings.bind_patience_s if trouble.is_race else settings.stuck_after_s

    def _verdict(self, trouble: Trouble) -> Ending:
        """A lost race is nobody's failure; anything else will not work the next time, either."""
        if trouble.is_race:
            return Ending(-1, trouble.words, is_lost=True)
        return Ending(CANNOT_RUN, f"{trouble.words}; {trouble.hint}")
