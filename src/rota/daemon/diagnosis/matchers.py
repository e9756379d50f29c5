"""What counts as a sign of a failure in a log. The table of failures is made of these.

Every kind looks for fixed words and reads the text once, so that no log, however hostile, takes
longer than its length. `str()` of each is what the reference says about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NEAR_LINES = 100


class Evidence(Protocol):
    def is_in(self, text: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Says:
    """Any of these words stand in the log."""

    words: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        return any(each in text for each in self.words)

    def __str__(self) -> str:
        return ", ".join(f"`{each}`" for each in self.words)


@dataclass(frozen=True, slots=True)
class SaysSoonAfter:
    """Any of these words stand in the log, and `place` stands at most 100 lines above them."""

    place: str
    words: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        if self.place not in text:
            return False
        n_lines_since = NEAR_LINES + 1
        for line in text.splitlines():
            n_lines_since += 1
            if n_lines_since <= NEAR_LINES and any(each in line for each in self.words):
                return True
            if self.place in line:
                n_lines_since = 0
        return False

    def __str__(self) -> str:
        words = ", ".join(f"`{each}`" for each in self.words)
        return f"within {NEAR_LINES} lines after `{self.place}`: {words}"


@dataclass(frozen=True, slots=True)
class SaysOften:
    """More than `n_times`."""

    words: str
    n_times: int

    def is_in(self, text: str) -> bool:
        return text.count(self.words) > self.n_times

    def __str__(self) -> str:
        return f"more than {self.n_times} times: `{self.words}`"


@dataclass(frozen=True, slots=True)
class AlwaysFull:
    """More than `n_samples` samples in a row, a line each, in which every `key` has the value
    `full`."""

    key: str
    full: str
    n_samples: int

    def is_in(self, text: str) -> bool:
        n_full = 0
        for line in text.splitlines() if self.key in text else ():
            n_values = line.count(self.key)
            if n_values:
                n_full = n_full + 1 if n_values == self._n_full(line) else 0
            if n_full > self.n_samples:
                return True
        return False

    def _n_full(self, line: str) -> int:
        """100 is full, and 1000 would be another number."""
        rests = line.split(f"{self.key}{self.full}")[1:]
        return sum(not rest[:1].isdecimal() for rest in rests)

    def __str__(self) -> str:
        return f"more than {self.n_samples} lines in a row with every `{self.key}{self.full}`"
