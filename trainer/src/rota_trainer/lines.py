"""Lines out of a stream of bytes, each cut to a bounded length."""

from __future__ import annotations

import re

LONGEST_LINE = 4096
"""What a line has beyond that is passed on, but not looked at."""
_ENDS = re.compile(rb"[\r\n]+")


class Lines:
    """Ends of lines are newlines and, for progress bars, carriage returns."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, read: bytes) -> list[str]:
        """Lines that ended with this."""
        *ended, begun = _ENDS.split(read)
        if not ended:
            self._begun = self._cut(self._begun, begun)
            return []
        ended[0] = self._cut(self._begun, ended[0])
        self._begun = begun[:LONGEST_LINE]
        return [line[:LONGEST_LINE].decode("utf-8", "replace") for line in ended if line]

    def rest(self) -> list[str]:
        """What was begun, when nothing will end it any more."""
        begun, self._begun = self._begun, b""
        return [begun.decode("utf-8", "replace")] if begun else []

    def _cut(self, begun: bytes, more: bytes) -> bytes:
        return begun + more[: LONGEST_LINE - len(begun)]
