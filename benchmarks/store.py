"""How fast the store of one box writes and reads: `python -m benchmarks.store [FOLDER]`.

Every write is durable: it counts when its commit is on the disk. FOLDER chooses the disk; the
system's folder for temporary files, if it is not given. The figures depend on it more than on
anything else, so the table begins with what it can do by itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from rota.core.effects import Effects
from rota.core.events import JobSubmitted
from rota.core.kernel import Kernel
from rota.core.model import Estimate, JobId, JobSpec
from rota.core.view import Rules
from rota.store.base import Batch
from rota.store.records import Submission
from rota.store.sqlite import SqliteStore

PROGRAM = '{"argv": ["python", "train.py", "--epochs", "90"], "workdir": "/data/runs", "env": {}}'
N_CLIENTS = 16
N_SYNCS = 200


def main(folder: str | None = None) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        print("| what | figure |\n|---|---|")
        show("the disk: 4 KiB appended and synced", f"{syncs_per_s(here):,.0f}/s")
        singles = [submit([number]) for number in range(10_000)]
        rate = writes_per_s(here / "a.db", singles, n_clients=N_CLIENTS)
        show(f"submits one by one, {N_CLIENTS} clients", f"{rate:,.0f}/s")
        hundreds = [submit(range(start, start + 100)) for start in range(0, 50_000, 100)]
        for n_clients in (1, 4):
            path = here / f"b{n_clients}.db"
            rate = 100 * writes_per_s(path, hundreds, n_clients=n_clients)
            show(f"submits by the hundred, {n_clients} client(s)", f"{rate:,.0f} rows/s")
        for n_jobs in (1_000, 10_000):
            read(here / f"c{n_jobs}.db", n_jobs)


def read(path: Path, n_jobs: int) -> None:
    writes_per_s(path, [submit(range(start, start + 100)) for start in range(0, n_jobs, 100)])
    start = perf_counter()
    store = SqliteStore(path)
    opened = perf_counter()
    store.load()
    loaded = perf_counter()
    page = store.jobs()
    listed = perf_counter()
    store.close()
    show(f"open, {n_jobs:,} jobs", f"{1e3 * (opened - start):.0f} ms")
    show(f"load, {n_jobs:,} jobs", f"{1e3 * (loaded - opened):.0f} ms")
    show(f"list {len(page.jobs)} of {n_jobs:,}", f"{1e3 * (listed - loaded):.1f} ms")
    show(f"size, {n_jobs:,} jobs", f"{path.stat().st_size / n_jobs:.0f} bytes each")


def submit(numbers: Sequence[int]) -> Batch:
    """Jobs as a kernel accepts them, with the least that a submit brings along."""
    kernel, all_of_them = Kernel(Rules()), Effects(0.0)
    for number in numbers:
        spec = JobSpec(f"train-{number}", user="ann", project="vision", estimate=Estimate(3600.0))
        effects = kernel.apply(JobSubmitted(job_id(number), spec), 1.7e9 + number)
        all_of_them.jobs.update(effects.jobs)
        all_of_them.transitions.extend(effects.transitions)
    sent = tuple(Submission(job_id(each), "ann", 1000, PROGRAM, f"key-{each}") for each in numbers)
    return Batch(all_of_them, submissions=sent, actor="ann")


def job_id(number: int) -> JobId:
    return JobId(f"j{number:08}")


def writes_per_s(path: Path, batches: Sequence[Batch], n_clients: int = 1) -> float:
    """Each client waits for its answer before it sends the next."""
    store = SqliteStore(path)
    todo: Iterator[Batch] = iter(batches)

    def send() -> None:
        # Advancing a list's iterator is one step for the interpreter, so clients may share it.
        for batch in todo:
            store.write(batch).result()

    start = perf_counter()
    with ThreadPoolExecutor(n_clients) as clients:
        for each in [clients.submit(send) for _ in range(n_clients)]:
            each.result()
    took = perf_counter() - start
    store.close()
    return len(batches) / took


def syncs_per_s(folder: Path) -> float:
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY)
    start = perf_counter()
    for _ in range(N_SYNCS):
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)
    took = perf_counter() - start
    os.close(descriptor)
    return N_SYNCS / took


def show(what: str, figure: str) -> None:
    print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
