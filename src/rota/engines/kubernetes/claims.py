"""Pods that a restart found and that have not started: somebody may still ask for them."""

from __future__ import annotations

from rota.engines.base import WorkerId

CLAIM_S = 15.0
"""Whoever nobody asked for within this time is told of as found, so that it is ended."""


class Claims:
    def __init__(self) -> None:
        self._due_s: dict[WorkerId, float] = {}

    def wait_for(self, worker: WorkerId, *, now: float) -> None:
        self._due_s[worker] = now + CLAIM_S

    def claim(self, worker: WorkerId) -> bool:
        """Somebody knows of it now. Whether that was open until then."""
        return self._due_s.pop(worker, None) is not None

    def overdue(self, now: float) -> list[WorkerId]:
        """Those that nobody asked for in time, each once."""
        found = [worker for worker, due_s in self._due_s.items() if due_s <= now]
        for worker in found:
            del self._due_s[worker]
        return found
