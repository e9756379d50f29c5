"""What `benchmarks.one_box` asks of a scheduler; each file beside this one is one that answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Protocol

NOTHING = ("true",)


class NotOfferedError(Exception):
    """The peer has no such request; the message says so, and the figure stays empty."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many jobs each measurement takes: fewer for a peer that is slow at it."""

    n_single: int = 2_000
    n_batches: int = 8
    n_in_batch: int = 1_000
    n_noops: int = 1_000


class Peer(Protocol):
    """A scheduler with its daemons on this box, in a folder of their own."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def needs(self) -> str:
        """What to install where, for those who miss it."""
        ...

    @property
    def remark(self) -> str:
        """How it was driven: what a reader has to know to compare its figures."""
        ...

    @property
    def is_durable(self) -> bool:
        """Whether it says that an acknowledged job is on the disk."""
        ...

    @property
    def amounts(self) -> Amounts: ...

    def available(self) -> bool: ...

    def running(self, slots: int) -> AbstractContextManager[None]:
        """Its daemons, with room for that many jobs at once; with 0, jobs are only accepted."""
        ...

    def submit_one(self, argv: Sequence[str]) -> None:
        """Returns when the job is acknowledged."""
        ...

    def submit_singles(self, n: int, n_clients: int) -> None:
        """`n` no-ops in requests of their own, by clients that each wait for every answer."""
        ...

    def submit_many(self, n: int) -> None:
        """`n` no-ops in one request."""
        ...

    def run_noops(self, n: int) -> None:
        """Submits `n` no-ops as fast as the peer can, and returns when all have ended."""
        ...

    def list_once(self) -> None: ...

    def survivors(self, n: int) -> int:
        """How many of `n` jobs acknowledged just before a kill -9 of the daemon are still known."""
        ...

    def server_pids(self) -> Sequence[int]:
        """The processes that stay while nothing happens."""
        ...


def spread(submit: Callable[[], object], n: int, *, n_clients: int) -> None:
    """Calls `submit` `n` times from that many threads."""
    # Advancing a range's iterator is one step of the interpreter, so the threads may share it.
    numbers = iter(range(n))

    def client() -> None:
        for _ in numbers:
            submit()

    with ThreadPoolExecutor(n_clients) as clients:
        for each in [clients.submit(client) for _ in range(n_clients)]:
            each.result()


def wait_until(is_so: Callable[[], bool], *, what: str, every_s: float, within_s: float) -> None:
    deadline = monotonic() + within_s
    while not is_so():
        if monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        sleep(every_s)
