"""A user's pattern for lines of progress, searched for with a bound on the time it may take."""

from __future__ import annotations

import re
import signal
from typing import Any

from rota_trainer.progress import Progress, from_words
from rota_trainer.say import say

MOST_CPU_S = 0.1
"""For one line. Some patterns take years on some lines."""
MOST_FAILURES = 10


class _TooSlowError(Exception):
    pass


class Pattern:
    """For the main thread alone: its alarm is what ends a search that takes too long."""

    def __init__(self, text: str, *, from_zero: bool = False) -> None:
        """Raises re.error if this is no pattern, ValueError if it names nothing to read."""
        self._pattern = re.compile(text)
        if not self._pattern.groupindex:
            raise ValueError("it has no named group, like (?P<epoch>\\d+)")
        self._from_zero = from_zero
        self._n_failures = 0
        signal.signal(signal.SIGVTALRM, _give_up)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._pattern.groupindex)

    def read(self, line: str) -> Progress | None:
        if self._n_failures >= MOST_FAILURES:
            return None
        try:
            found = self._search(line)
        except _TooSlowError:
            self._n_failures += 1
            if self._n_failures in (1, MOST_FAILURES):
                last = " and is not used any more" if self._n_failures == MOST_FAILURES else ""
                say(f"the pattern for progress takes too long on some lines{last}; simplify it")
            return None
        return from_words(found.groupdict(), from_zero=self._from_zero) if found else None

    def _search(self, line: str) -> re.Match[str] | None:
        # In seconds of this process: a busy machine does not make a pattern slow.
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
        try:
            return self._pattern.search(line)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _give_up(_number: int, _frame: Any) -> None:
    raise _TooSlowError
