"""A process that may write no file beyond 1 MB: `python -m ...limited FILE`."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from rota.errors import StoreError, Trouble
from rota.store.sqlite import SqliteStore
from tests.lives import Life

LIMIT = 1024**2


def main(file: str) -> None:
    store, life = SqliteStore(Path(file)), Life()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    written: list[str] = []
    trouble = None
    while trouble is None:
        batch = life.submit(len(written), 0)
        try:
            store.write(batch).result()
            written.append(batch.submissions[0].job_id)
        except StoreError as error:
            trouble = error.trouble
    assert trouble in (Trouble.IO, Trouble.FULL), trouble
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
