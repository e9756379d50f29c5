"""The protocol through which `benchmarks.one_box` drives a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

NOTHING = ("true",)


class NotOfferedError(Exception):
    """The peer does not support the request. The result stays empty."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """The number of jobs of each measurement; smaller for a slow peer."""

    n_single: int = 2_000
    n_batches: int = 8
    n_in_batch: int = 1_000
    n_noops: int = 1_000


class Peer(Protocol):
    """A scheduler whose daemons run on this machine in their own folder."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def needs(self) -> str:
        """How to install the scheduler."""
        ...

    @property
    def remark(self) -> str:
        """How the scheduler is driven, which a reader needs to compare the results."""
        ...

    @property
    def is_durable(self) -> bool:
        """Whether the scheduler promises that an acknowledged job is on disk."""
        ...

    @property
    def amounts(self) -> Amounts: ...

    def available(self) -> bool: ...

    def running(self, slots: int) -> AbstractContextManager[None]:
        """Run the daemons with this number of slots; with 0, jobs are accepted but not started."""
        ...

    def submit_one(self, argv: Sequence[str]) -> None:
        """Returns when the job is acknowledged."""
        ...

    def submit_singles(self, n: int, n_clients: int) -> None:
        """Submit `n` no-ops in single requests; each client waits for every answer."""
        ...

    def submit_many(self, n: int) -> None:
        """Submit `n` no-ops in one request."""
        ...

    def run_noops(self, n: int) -> None:
        """Submit `n` no-ops as fast as possible and wait until all have ended."""
        ...

    def list_once(self) -> None: ...

    def survivors(self, n: int) -> int:
        """How many of `n` acknowledged jobs survive a kill -9 of the daemon."""
        ...

    def server_pids(self) -> Sequence[int]:
        """Process ids of the idle daemons."""
        ...


def spread(submit: Callable[[], object], n: int, *, n_clients: int) -> None:
    """Calls `submit` `n` times from that many threads."""
    # Advancing a range's iterator is atomic in CPython, so the threads can share it.
    numbers = iter(range(n))

    def client() -> None:
        for _ in numbers:
            submit()

    with ThreadPoolExecutor(n_clients) as clients:
        for each in [clients.submit(client) for _ in range(n_clients)]:
            each.result()
