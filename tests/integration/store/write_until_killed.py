"""A process that writes a life of jobs until it is killed: `python -m ...writing FILE SEED COUNT`.

It says on stdout which batches were acknowledged. Each batch carries its number as somebody's
usage, so that the file tells how far it got.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Semaphore

from rota.store.base import Batch
from rota.store.records import Usage
from rota.store.sqlite import SqliteStore
from tests.lives import Life, random_steps

IN_FLIGHT = 16


def numbered(seed: int, count: int) -> Iterator[Batch]:
    life = Life()
    for number, step in enumerate(random_steps(seed, count), start=1):
        yield replace(life.step(step), rows=(Usage("", "writer", number, 0.0, 0.0),))


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
