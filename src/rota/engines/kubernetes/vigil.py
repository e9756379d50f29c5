"""Who waits too long: pods that cannot be made, that the scheduler cannot place, or that cannot
start."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rota.engines.base import WorkerId
from rota.engines.kubernetes.bodies import Body, Stage
from rota.engines.kubernetes.endings import CANNOT_RUN, Ending, Trouble
from rota.engines.kubernetes.settings import KubernetesSettings

BEING_MADE = Trouble("its node is making it", is_unclear=True)
UNSEEN = Trouble("the cluster's scheduler has not looked at it yet", is_unclear=True)
ASK_AGAIN_S = 15.0


@dataclass(frozen=True, slots=True)
class _Seen:
    trouble: Trouble
    since_s: float
    asked_s: float = -math.inf
    is_told: bool = False

    def is_like(self, other: Trouble) -> bool:
        mine = self.trouble
        if mine.is_unclear:
            return mine == other
        return _kind(mine) == _kind(other)


def _words(worker: WorkerId, seen: _Seen) -> tuple[str, int, str]:
    return worker.job_id, worker.attempt, seen.trouble.words


def _kind(trouble: Trouble) -> tuple[bool, bool, bool]:
    return trouble.is_race, trouble.is_unclear, trouble.is_outage


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
        if known is not None and known.is_like(trouble):
            self._seen[worker] = replace(known, trouble=trouble)
        else:
            self._seen[worker] = _Seen(trouble, now)

    def untold(self, now: float) -> dict[WorkerId, str]:
        """What may last, or does, for its owner to know of meanwhile. Each is given once; one
        worker speaks for all who come with it and are kept by the same."""
        told = {_words(worker, seen) for worker, seen in self._seen.items() if seen.is_told}
        found: dict[WorkerId, str] = {}
        for worker, seen in list(self._seen.items()):
            if seen.is_told or not self._may_last(seen, now):
                continue
            self._seen[worker] = replace(seen, is_told=True)
            if _words(worker, seen) not in told:
                told.add(_words(worker, seen))
                found[worker] = seen.trouble.words
        return found

    def _may_last(self, seen: _Seen, now: float) -> bool:
        if seen.trouble.is_unclear:
            return self._is_late(seen, now)
        return not seen.trouble.is_race

    def verdicts(self, now: float) -> dict[WorkerId, Ending]:
        """On those whose time is up. Each is given once."""
        late = {
            worker: verdict(seen.trouble)
            for worker, seen in self._seen.items()
            if self._is_late(seen, now) and not seen.trouble.is_unclear
        }
        for worker in late:
            del self._seen[worker]
        return late

    def unclear(self, now: float) -> list[WorkerId]:
        """Those whose time is up, and who may be well all the same: to be asked about, and again
        after a while."""
        late = [
            worker
            for worker, seen in self._seen.items()
            if seen.trouble.is_unclear
            and self._is_late(seen, now)
            and now - seen.asked_s >= ASK_AGAIN_S
        ]
        for worker in late:
            self._seen[worker] = replace(self._seen[worker], asked_s=now)
        return late

    def _is_late(self, seen: _Seen, now: float) -> bool:
        settings = self._settings
        is_race = seen.trouble.is_race
        patience_s = settings.bind_patience_s if is_race else settings.stuck_after_s
        return now - seen.since_s >= patience_s


def trouble_with(body: Body, trouble: Trouble | None) -> Trouble | None:
    """What keeps it from starting, or may."""
    if trouble is not None or body.stage is not Stage.WAITING:
        return trouble
    return BEING_MADE if body.node else UNSEEN


def verdict(trouble: Trouble) -> Ending:
    """A lost race is nobody's failure, nor is an outage; anything else will not work the next
    time, either."""
    if trouble.is_nobodys:
        return Ending(-1, trouble.words, is_lost=True, is_refused=trouble.is_refusal)
    return Ending(CANNOT_RUN, f"{trouble.words}; {trouble.hint}")
