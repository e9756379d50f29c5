"""SIGTERM means: stop at the next step. Scripts that handle it themselves are left alone."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable


class Insistence:
    """Whether SIGTERM came. A second one has its usual effect."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        """`at_once` is called by the first signal, in the main thread; it may raise."""
        self.came = False
        self._at_once = at_once
        self._is_ours = False

    def listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
            self._is_ours = True

    def forget(self) -> None:
        """Put the usual effect back, unless somebody else put a handler there since."""
        if not self._is_ours:
            return
        self._is_ours = False
        try:
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        except ValueError:
            pass  # Not the main thread.

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.came:
            # Somebody kept our handler and passes signals on to it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.came = True
        self.forget()
        self._at_once()
