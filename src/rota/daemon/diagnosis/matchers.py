"""The patterns of the failure table: each decides whether a log shows a failure.

All of them search for fixed text and read the log once, so that the time is linear in the length of
the log, whatever it contains. `str()` of a matcher is its description in the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NEAR_LINES = 100


class LogMatcher(Protocol):
    def is_in(self, text: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class ContainsAny:
    """Matches if any of these texts is in the log."""

    texts: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        return any(each in text for each in self.texts)

    def __str__(self) -> str:
        return ", ".join(f"`{each}`" for each in self.texts)


@dataclass(frozen=True, slots=True)
class ContainsSoonAfter:
    """Matches if any of these texts is in the log at most 100 lines below `anchor`."""

    anchor: str
    texts: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        if self.anchor not in text:
            return False
        n_lines_since = NEAR_LINES + 1
        for line in text.splitlines():
            n_lines_since += 1
            if n_lines_since <= NEAR_LINES and any(each in line for each in self.texts):
                return True
            if self.anchor in line:
                n_lines_since = 0
        return False

    def __str__(self) -> str:
        texts = ", ".join(f"`{each}`" for each in self.texts)
        return f"within {NEAR_LINES} lines after `{self.anchor}`: {texts}"


@dataclass(frozen=True, slots=True)
class ContainsOften:
    """Matches if the text is in the log more than `n_times`."""

    searched: str
    n_times: int

    def is_in(self, text: str) -> bool:
        return text.count(self.searched) > self.n_times

    def __str__(self) -> str:
        return f"more than {self.n_times} times: `{self.searched}`"


@dataclass(frozen=True, slots=True)
class RepeatsValue:
    """Matches more than `n_samples` consecutive lines with `key` in which every `key` has the value
    `full`. Lines without `key` are ignored."""

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
        """How often `key` has exactly the value `full`: 1000 does not count as 100."""
        rests = line.split(f"{self.key}{self.full}")[1:]
        return sum(not rest[:1].isdecimal() for rest in rests)

    def __str__(self) -> str:
        return f"more than {self.n_samples} lines in a row with every `{self.key}{self.full}`"
