"""The daemon's orders about generations, as received by this worker.

The reporter thread receives orders and aborts a process group that cannot finish; the training
thread reads the newest switch and publishes the state of this worker in its reports.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, NamedTuple

from rota_trainer.reporting.environment import WorkerEnvironment
from rota_trainer.reporting.messages import Orders, Switch
from rota_trainer.reporting.reporter import Reporter

NO_GENERATION = -1
REPORT_EVERY_S = 1.0
"""The time between reports while this worker waits for an order, also if the daemon is away."""
SMOOTHING = 0.2
"""The weight of the newest step in the moving average of step times."""
FORMING_S = 1.0
"""Members connect to each other in less than this. After it, a newer switch or a stop aborts the
forming group, because a member may be gone."""
OVERDUE_S = 10.0
OVERDUE_STEPS = 5.0
"""If there is a newer generation, a step is aborted after `OVERDUE_STEPS` times the longest step
so far, and at least `OVERDUE_S`: the peer that it waits for may be gone unnoticed."""


class OpenProcessGroup(NamedTuple):
    """The open process group; its generation may not be committed yet."""

    generation: int
    abort: Callable[[], None]
    """Aborts its collectives, or the wait for members that have not connected."""
    is_forming: bool = False
    """Whether its members are still connecting to each other."""


class MembershipClient:
    """Receives orders in the reporter thread; the training thread reads them."""

    def __init__(
        self, environment: WorkerEnvironment, reporter: Reporter, *, identity: str, address: str
    ) -> None:
        self.number = environment.worker
        self.newest: Switch | None = None
        self.refused = ""
        self.opened: OpenProcessGroup | None = None
        self.generation = NO_GENERATION
        self._first = environment.generation
        """The generation that this worker was started for. Earlier ones do not contain it."""
        self._reporter = reporter
        self._identity = identity
        self._address = address
        self._changed = threading.Event()
        self._moved_s = time.monotonic()
        self._longest_s = 0.0
        self._own_s: float | None = None
        self._asked_s = 0.0
        self.publish(step=0)
        reporter.subscribe(self.on_orders)
        reporter.report_now()

    def publish(self, *, step: int, pause_s: float | None = None) -> None:
        """Set the membership fields of the next reports. The dictionary is replaced as a whole,
        because the reporter thread reads it."""
        last = self._reporter.membership
        self._reporter.membership = {
            "generation": self.generation,
            "address": self._address,
            "identity": self._identity,
            "global_step": step,
            "pause_s": last.get("pause_s") if pause_s is None else pause_s,
            "own_s": self._own_s,
        }

    def is_in(self, switch: Switch) -> bool:
        return any(member.number == self.number for member in switch.members)

    def is_left_out(self, switch: Switch) -> bool:
        return switch.generation >= self._first and not self.is_in(switch)

    def is_behind(self, generation: int) -> bool:
        """Whether there is a newer generation."""
        return self.newest is not None and self.newest.generation > generation

    def wait(self, seconds: float) -> None:
        """Wait for a new order, at most for this time."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= REPORT_EVERY_S:
            self._asked_s = now_s
            self._reporter.report_now()
        self._changed.wait(seconds)
        self._changed.clear()

    def mark_activity(self, *, is_step: bool) -> None:
        """Record that training makes progress; the time until overdue is measured from here."""
        now_s = time.monotonic()
        if is_step:
            self._longest_s = max(self._longest_s, now_s - self._moved_s)
        self._moved_s = now_s

    def record_own_time(self, seconds: float) -> None:
        """Record the time of a step without the wait for other workers."""
        before_s = seconds if self._own_s is None else self._own_s
        self._own_s = before_s + SMOOTHING * (seconds - before_s)

    def on_orders(self, orders: Orders) -> None:
        self.refused = orders.refused
        switch = orders.switch
        if switch is not None and not (self.newest and self.newest.generation >= switch.generation):
            self.newest = switch
            self._changed.set()
        if orders.refused or orders.stop:
            self._changed.set()
        opened = self.opened
        if opened is not None and self._is_stuck(opened, orders):
            opened.abort()

    def _is_stuck(self, opened: OpenProcessGroup, orders: Orders) -> bool:
        """Whether the open group should be aborted. Orders are repeated until the worker follows
        them, so an order for the open group itself changes nothing."""
        switch, waited_s = orders.switch, time.monotonic() - self._moved_s
        is_old = switch is not None and switch.generation > opened.generation
        if opened.is_forming:
            # A member that got either order may not connect any more.
            return waited_s > FORMING_S and (is_old or bool(orders.stop))
        is_broken = switch is not None and switch.is_broken
        overdue_s = max(OVERDUE_S, OVERDUE_STEPS * self._longest_s)
        return is_old and (is_broken or waited_s > overdue_s)
