"""SIGTERM handling: the first signal requests a stop at the next step.

The handler is installed only where SIGTERM has its default effect, so that a script's own handler
stays in use.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable


class SigtermHandler:
    """Records the first SIGTERM. A second SIGTERM has its default effect: it ends the process."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        """`on_first` is called at the first signal, in the main thread; it may raise."""
        self.received = False
        self._on_first = on_first
        self._is_installed = False

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
            self._is_installed = True

    def uninstall(self) -> None:
        """Restore the default effect, unless another handler was installed since."""
        if not self._is_installed:
            return
        self._is_installed = False
        try:
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        except ValueError:
            pass  # Not the main thread.

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.received:
            # Another handler was installed over this one and forwards signals to it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = True
        self.uninstall()
        self._on_first()
