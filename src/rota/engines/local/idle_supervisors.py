"""Supervisors whose worker has ended and which wait for another one.

A new supervisor costs a fork and many page faults; a waiting one costs a few MiB of memory. So few
of them wait, and not for long.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from rota.engines.local.supervisor.records import WorkerKey

IDLE_S = 5.0
"""An idle supervisor ends after this time."""
IDLE_MAX = 16
"""More supervisors than this do not wait."""
WORKERS_MAX = 1000
"""A supervisor runs at most so many workers, one after the other."""


@dataclass(slots=True, eq=False)
class SupervisorHandle:
    """A supervisor process that this daemon watches."""

    pid: int
    pidfd: int
    key: WorkerKey | None
    """The worker that it runs; None if it is idle."""
    is_started: bool = False
    """Whether the start of the worker was reported."""
    n_workers: int = 1
    idle_since_s: float = 0.0

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.pidfd)
        os.close(self.pidfd)


class IdleSupervisors:
    def __init__(self) -> None:
        self._idle: list[SupervisorHandle] = []
        """The newest is the last."""
        self._timer: asyncio.TimerHandle | None = None

    def put(self, supervisor: SupervisorHandle) -> None:
        supervisor.key = None
        if len(self._idle) >= IDLE_MAX or supervisor.n_workers >= WORKERS_MAX:
            _end(supervisor)
            return
        supervisor.idle_since_s = time.monotonic()
        self._idle.append(supervisor)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_oldest)

    def take(self, key: WorkerKey) -> SupervisorHandle | None:
        """Return the supervisor that became idle last, for this worker; None if there is none."""
        if not self._idle:
            return None
        supervisor = self._idle.pop()
        supervisor.key, supervisor.is_started = key, False
        supervisor.n_workers += 1
        return supervisor

    def drop(self, supervisor: SupervisorHandle) -> None:
        """Forget a supervisor that has ended."""
        with suppress(ValueError):
            self._idle.remove(supervisor)

    def close(self) -> None:
        """End all of them."""
        if self._timer is not None:
            self._timer.cancel()
        while self._idle:
            supervisor = self._idle.pop()
            _end(supervisor)
            supervisor.close()

    def _end_oldest(self) -> None:
        """End those that are idle for too long, and look again later if others are left."""
        due_s = time.monotonic() - IDLE_S
        while self._idle and self._idle[0].idle_since_s <= due_s:
            _end(self._idle.pop(0))
        self._timer = None
        if self._idle:
            wait_s = self._idle[0].idle_since_s - due_s
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._end_oldest)


def _end(supervisor: SupervisorHandle) -> None:
    """It has no worker, no lock and no files, so that SIGKILL harms nothing."""
    supervisor.send(signal.SIGKILL)
