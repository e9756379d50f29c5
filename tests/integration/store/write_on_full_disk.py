"""A process with its own disk: `python -m ...write_on_full_disk FOLDER`, inside a mount namespace.

It mounts 2 MB on FOLDER, fills them up, makes room again, and in the end makes them read-only.
Each sentence on stdout is a promise kept; the test knows them all.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rota.errors import StoreError, StoreErrorKind
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import StoreWorkload

SIZE = 2 * 1024**2


def main(folder: str) -> None:
    path, filler = Path(folder) / "rota.db", Path(folder) / "filler"
    mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder)
    store, life = SqliteStore(path), StoreWorkload()
    filler.write_bytes(bytes(SIZE // 2))

    n_written, kind = fill_up(store, life)
    tell("full" if kind is StoreErrorKind.FULL and n_written > 10 else f"not full: {kind}")
    n_again, kind = fill_up(store, life)
    tell("still full" if (n_again, kind) == (0, StoreErrorKind.FULL) else f"no longer full: {kind}")
    filler.unlink()
    store.resume().result()
    store.write(life.submit(1, 0)).result()
    n_jobs = n_written + 1
    tell("goes on" if len(store.load().jobs) == n_jobs else "lost something")

    store.close()

    tell("whole" if check(path) == [] else "broken")
    reopened = SqliteStore(path)
    tell("all there" if len(reopened.load().jobs) == n_jobs else "lost something")
    reopened.close()
    # In a user namespace, the options of the mount name a uid that `mount` cannot map: ignore them.
    mount("--options-mode", "ignore", "-o", "remount,ro", folder)
    try:
        SqliteStore(path)
    except StoreError as error:
        tell(f"opened read-only: {error.kind}")
    tell("nothing half-made" if store_names(path.parent) == {path.name} else "left something")


def fill_up(store: SqliteStore, life: StoreWorkload) -> tuple[int, StoreErrorKind]:
    """Write jobs until one fails; return the number of written jobs and the error."""
    for number in range(100_000):
        try:
            store.write(life.submit(number, 0)).result()
        except StoreError as error:
            return number, error.kind
    raise AssertionError("it never failed")


def store_names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def tell(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
