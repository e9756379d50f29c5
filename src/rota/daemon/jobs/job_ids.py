"""Job ids: eight characters that sort by the time of submission and are easy to read aloud."""

from __future__ import annotations

from collections.abc import Callable

from rota.core.model.job import JobId

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 8
EPOCH_S = 1_735_689_600
"""2025-01-01. Eight characters of five bits hold milliseconds for 34 years."""


class JobIdGenerator:
    """Each id is larger than all ids before."""

    def __init__(self, clock: Callable[[], float], *, newest: JobId | None = None) -> None:
        self._clock = clock
        self._last = decode(newest) if newest else 0

    def next(self) -> JobId:
        self._last = max(self._last + 1, int((self._clock() - EPOCH_S) * 1000))
        return encode(self._last)


def encode(number: int) -> JobId:
    return JobId("".join(ALPHABET[number >> shift & 31] for shift in range(5 * LENGTH - 5, -1, -5)))


def decode(job_id: JobId) -> int:
    number = 0
    for character in job_id:
        number = number << 5 | ALPHABET.index(character)
    return number


def is_job_id(word: str) -> bool:
    """Whether the word has the form of a job id."""
    return len(word) == LENGTH and set(word) <= set(ALPHABET)
