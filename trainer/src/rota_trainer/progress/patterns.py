"""Searches output lines with the user's progress pattern, with a limit of CPU time per line.

The limit is needed because some regular expressions take years on some lines.
"""

from __future__ import annotations

import re
import signal
from typing import Any

from rota_trainer.console import print_message
from rota_trainer.progress.observed import ProgressUpdate, parse_progress

MOST_CPU_S = 0.1
"""CPU time for one line."""
MOST_FAILURES = 10
"""After this many lines that took too long, the pattern is not used any more."""


class _TooSlowError(Exception):
    pass


class Pattern:
    """For the main thread only: a signal handler ends a search that takes too long."""

    def __init__(self, text: str, *, from_zero: bool = False) -> None:
        """Raises re.error for an invalid pattern, ValueError for one without a named group."""
        self._pattern = re.compile(text)
        if not self._pattern.groupindex:
            raise ValueError("the pattern has no named group, such as (?P<epoch>\\d+)")
        self._from_zero = from_zero
        self._n_failures = 0
        signal.signal(signal.SIGVTALRM, _give_up)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._pattern.groupindex)

    def read(self, line: str) -> ProgressUpdate | None:
        if self._n_failures >= MOST_FAILURES:
            return None
        try:
            found = self._search(line)
        except _TooSlowError:
            self._n_failures += 1
            if self._n_failures in (1, MOST_FAILURES):
                last = " and is disabled" if self._n_failures == MOST_FAILURES else ""
                print_message(
                    f"the progress pattern takes too long on some lines{last}; simplify it"
                )
            return None
        return parse_progress(found.groupdict(), from_zero=self._from_zero) if found else None

    def _search(self, line: str) -> re.Match[str] | None:
        # CPU time of this process, so that a busy machine does not count.
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
        try:
            return self._pattern.search(line)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _give_up(_number: int, _frame: Any) -> None:
    raise _TooSlowError
