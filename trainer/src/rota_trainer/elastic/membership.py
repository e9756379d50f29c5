"""What the daemon says about who trains together, as far as this worker has heard."""

from __future__ import annotations

import threading
import time
from typing import Callable, NamedTuple

from rota_trainer.messages import Orders, Switch
from rota_trainer.place import Place
from rota_trainer.reporter import Reporter

NOBODY = -1
HURRY_S = 1.0
"""Who waits for an order does not wait longer between two reports, also while nobody answers."""
NEWEST = 0.2
"""What the newest step counts in the mean of those before it."""
FORMING_S = 1.0
"""Connecting to each other takes less. If it does not, whoever is gone is told of by then."""
OVERDUE_S = 10.0
OVERDUE_STEPS = 5.0
"""A step that takes so many times as long as the longest before, and at least so many seconds, is
not waited for when there is a newer generation: whoever it waits for may be gone without a word."""


class Opened(NamedTuple):
    """The process group that is open, perhaps of a generation that does not stand yet."""

    generation: int
    abort: Callable[[], None]
    """Ends its collectives, or the wait for those who are to connect."""
    is_forming: bool = False
    """Whether its members are still about to connect to each other."""


class Membership:
    """Orders come in the reporter's thread; the training thread asks."""

    def __init__(self, place: Place, reporter: Reporter, *, identity: str, address: str) -> None:
        self.number = place.worker
        self.newest: Switch | None = None
        self.refused = ""
        self.opened: Opened | None = None
        self.generation = NOBODY
        self._first = place.generation
        """The one that this worker was started for. Those before are others'."""
        self._reporter = reporter
        self._identity = identity
        self._address = address
        self._news = threading.Event()
        self._moved_s = time.monotonic()
        self._longest_s = 0.0
        self._own_s: float | None = None
        self._hurried_s = 0.0
        self.tell(step=0)
        reporter.on_orders = self._hear
        reporter.hurry()

    def tell(self, *, step: int, pause_s: float | None = None) -> None:
        """What the next reports say. Replaced as a whole, because another thread reads it."""
        said = self._reporter.membership
        self._reporter.membership = {
            "generation": self.generation,
            "address": self._address,
            "identity": self._identity,
            "global_step": step,
            "pause_s": said.get("pause_s") if pause_s is None else pause_s,
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
        """Until something is heard, or so long."""
        now_s = time.monotonic()
        if now_s - self._hurried_s >= HURRY_S:
            self._hurried_s = now_s
            self._reporter.hurry()
        self._news.wait(seconds)
        self._news.clear()

    def moved(self, *, is_step: bool) -> None:
        """Training goes on; what counts as overdue is measured from here."""
        now_s = time.monotonic()
        if is_step:
            self._longest_s = max(self._longest_s, now_s - self._moved_s)
        self._moved_s = now_s

    def worked(self, seconds: float) -> None:
        """So long a step took until this worker had nothing to do but wait for the others."""
        before_s = seconds if self._own_s is None else self._own_s
        self._own_s = before_s + NEWEST * (seconds - before_s)

    def _hear(self, orders: Orders) -> None:
        self.refused = orders.refused
        switch = orders.switch
        if switch is not None and not (self.newest and self.newest.generation >= switch.generation):
            self.newest = switch
            self._news.set()
        if orders.refused or orders.stop:
            self._news.set()
        opened = self.opened
        if opened is not None and self._is_stuck(opened, orders):
            opened.abort()

    def _is_stuck(self, opened: Opened, orders: Orders) -> bool:
        """An order is repeated until it is followed: what comes about by it is left alone."""
        switch, waited_s = orders.switch, time.monotonic() - self._moved_s
        is_old = switch is not None and switch.generation > opened.generation
        if opened.is_forming:
            # Who has heard of either may not come any more.
            return waited_s > FORMING_S and (is_old or bool(orders.stop))
        is_broken = switch is not None and switch.is_broken
        overdue_s = max(OVERDUE_S, OVERDUE_STEPS * self._longest_s)
        return is_old and (is_broken or waited_s > overdue_s)
