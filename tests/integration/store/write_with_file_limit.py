"""Writes with a file size limit of 1 MB: `python -m ...write_with_file_limit FILE`."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from rota.errors import StoreError, StoreErrorKind
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import StoreWorkload

LIMIT = 1024**2


def main(file: str) -> None:
    store, life = SqliteStore(Path(file)), StoreWorkload()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    written: list[str] = []
    kind = None
    while kind is None:
        batch = life.submit(len(written), 0)
        try:
            store.write(batch).result()
            written.append(batch.submissions[0].job_id)
        except StoreError as error:
            kind = error.kind
    assert kind in (StoreErrorKind.IO, StoreErrorKind.FULL), kind
    assert [job.id for job in store.load().jobs] == written
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.resume().result()
    again = life.submit(1, 0)
    store.write(again).result()
    written.append(again.submissions[0].job_id)
    store.close()
    sys.stdout.write(" ".join(written))


if __name__ == "__main__":
    main(*sys.argv[1:])
