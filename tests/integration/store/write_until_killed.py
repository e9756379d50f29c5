"""Writes batches until it is killed: `python -m ...write_until_killed FILE SEED COUNT`.

It prints the acknowledged batches. Each batch stores its number as the usage of a user, so that
the file shows how far it got.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Semaphore

from rota.core.model.job import Ended, JobId
from rota.store.interface import NO_DELETIONS, Batch, Deletions
from rota.store.records import UsageRecord
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import StoreWorkload, random_steps

IN_FLIGHT = 16
KEPT_ENDED = 5


def numbered(seed: int, count: int) -> Iterator[Batch]:
    """Some batches also delete a job that has ended, as retention does."""
    life, ended = StoreWorkload(), list[JobId]()
    for number, step in enumerate(random_steps(seed, count), start=1):
        batch = life.step(step)
        ended += [job.id for job in batch.effects.jobs.values() if isinstance(job.phase, Ended)]
        deleted = Deletions(jobs=(ended.pop(0),)) if len(ended) > KEPT_ENDED else NO_DELETIONS
        usage = UsageRecord("", "writer", number, 0.0, 0.0)
        yield replace(batch, rows=(usage,), deleted=deleted)


def main(file: str, seed: str, count: str) -> None:
    store = SqliteStore(Path(file))
    room = Semaphore(IN_FLIGHT)

    def acknowledge(number: int, _: object) -> None:
        os.write(sys.stdout.fileno(), f"{number}\n".encode())
        room.release()

    for number, batch in enumerate(numbered(int(seed), int(count)), start=1):
        room.acquire()
        store.write(batch).add_done_callback(partial(acknowledge, number))
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
