"""The background thread that reports and hears orders, as training sees it: never in its way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from rota_trainer.place import Place
from rota_trainer.say import say
from rota_trainer.tally import Tally

if TYPE_CHECKING:
    from rota_trainer.messages import Orders

FAREWELL_S = 2.0


class Reporter:
    def __init__(self, place: Place, tally: Tally) -> None:
        self.place = place
        self.tally = tally
        self.stop = ""
        """Why to stop at the next safe point; empty if not to."""
        self.hears = False
        """Whether the script stops by itself when it is asked to."""
        self.membership: dict[str, Any] = {"generation": place.generation}
        """Fields of each report that say which generation this worker is in, or could join."""
        self.on_orders: Callable[[Orders], object] = lambda _orders: None
        """Called with each answer, in the background."""
        self.ended = threading.Event()
        self.hang_up: Callable[[], None] = lambda: None
        """Ends the wait for an answer, from another thread."""
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        thread = threading.Thread(target=self._run, name="rota-trainer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            say(f"nothing is reported ({error}); training goes on")
            return
        self._thread = thread

    def close(self) -> None:
        """Say what is left to say, without waiting long for an answer."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.ended.set()
            self.hurry()
            self.hang_up()
            thread.join(FAREWELL_S)

    def hurry(self) -> None:
        """The next report is sent at once, unless one waits for its answer already."""
        self._woken.set()

    def rest(self, seconds: float) -> bool:
        """Between two reports. True when this one is to be the last."""
        if not self.ended.is_set():
            self._woken.wait(seconds)
            self._woken.clear()
        return self.ended.is_set()

    def abandon(self) -> None:
        """In a forked child: the thread is not here, and what it would say is the parent's."""
        self._thread = None

    def _run(self) -> None:
        # Here, where nobody waits for it: HTTP and JSON take a while to import.
        from rota_trainer.reporting import Conversation

        Conversation(self).hold()
