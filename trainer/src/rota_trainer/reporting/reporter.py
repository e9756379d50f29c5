"""The reporter thread, as seen by the training thread: start, stop, and the latest orders.

Training never waits for the network: it reads attributes that the thread in `loop` writes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from rota_trainer.console import print_message
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.environment import WorkerEnvironment

if TYPE_CHECKING:
    from rota_trainer.reporting.loop import ReportLoop
    from rota_trainer.reporting.messages import Orders

LAST_REPORT_TIMEOUT_S = 2.0


class Reporter:
    def __init__(self, environment: WorkerEnvironment, tally: Tally) -> None:
        self.environment = environment
        self.tally = tally
        self.stop = ""
        """The reason to stop at the next safe point; empty if no stop is requested."""
        self.hears = False
        """Whether the script stops by itself after a stop request. Reported to the daemon."""
        self.membership: dict[str, Any] = {"generation": environment.generation}
        """Report fields about the generation that this worker is in or is ready to join."""
        self.ended = threading.Event()
        self._listeners: list[Callable[[Orders], object]] = []
        self._loop: ReportLoop | None = None
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        thread = threading.Thread(target=self._run, name="rota-trainer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            print_message(f"reporting is disabled ({error}); training continues")
            return
        self._thread = thread

    def close(self) -> None:
        """Send the last report, and wait a short time for it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.ended.set()
            self.report_now()
            if self._loop is not None:
                self._loop.interrupt()
            thread.join(LAST_REPORT_TIMEOUT_S)

    def subscribe(self, listener: Callable[[Orders], object]) -> None:
        """Call the listener with the orders of each response, in the reporter thread."""
        self._listeners.append(listener)

    def take_orders(self, orders: Orders) -> None:
        """Called by the reporter thread with each response."""
        self.stop = orders.stop
        for listener in self._listeners:
            listener(orders)

    def report_now(self) -> None:
        """Send the next report immediately, unless one is waiting for its response."""
        self._woken.set()

    def wait_for_next(self, seconds: float) -> bool:
        """Wait until the next report is due. Returns True if the reporter was closed."""
        if not self.ended.is_set():
            self._woken.wait(seconds)
            self._woken.clear()
        return self.ended.is_set()

    def abandon(self) -> None:
        """In a forked child: the thread does not exist here, and the parent reports."""
        self._thread = None

    def _run(self) -> None:
        # Imported in the thread: HTTP and JSON take a while to import.
        from rota_trainer.reporting.loop import ReportLoop

        self._loop = ReportLoop(self)
        self._loop.run()
