"""Measures writes and reads of the SQLite store.

    python -m benchmarks.store [--folder DIR]

Every write is durable: it counts when its commit is on disk. `--folder` chooses the disk (default:
the system's temporary folder). Prints and writes `docs/results/store.md`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.support.flags import flags
from benchmarks.support.markdown import NO_VALUE, machine, page, publish, table
from rota.core.kernel.kernel import Kernel
from rota.core.model.effects import Effects
from rota.core.model.events import JobSubmitted
from rota.core.model.job import Estimate, JobId, JobSpec
from rota.core.scheduling.view import Rules
from rota.store.interface import Batch
from rota.store.records import Submission
from rota.store.sqlite.store import SqliteStore

PROGRAM = '{"argv": ["python", "train.py", "--epochs", "90"], "workdir": "/data/runs", "env": {}}'
N_CLIENTS = 16
N_SYNCS = 200
HUNDRED = 100


@dataclass(frozen=True, slots=True)
class Time:
    """Wall time and CPU time of this process, in seconds."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], object]) -> Time:
    wall_s, cpu_s = perf_counter(), process_time()
    work()
    return Time(perf_counter() - wall_s, process_time() - cpu_s)


def main() -> None:
    parser = flags(__doc__ or "", page="store.md")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to write")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        rows = [_disk(Path(name)), *_writes(Path(name))]
        for n_jobs in (1_000, 10_000):
            rows += _reads(Path(name) / f"{n_jobs}.db", n_jobs)
    publish(render(rows), arguments.out)


def render(rows: Sequence[Sequence[str]]) -> str:
    return page(
        "# How fast the store is",
        "Durable writes to a SQLite file by one writer thread, and reads of it. A row is a job as "
        "it is submitted, with its program, its idempotency key and its first event. *CPU each* "
        "is this process's time for one row; the rest of the time by the clock belongs to the "
        "disk and to whatever else the machine does. The first line is what the disk does by "
        "itself. "
        f"Made by `python -m benchmarks.store` on a machine with {machine()}.",
        table(("what", "aim", "measured", "CPU each"), rows),
    )


def _disk(folder: Path) -> Sequence[str]:
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY)

    def sync() -> None:
        for _ in range(N_SYNCS):
            os.write(descriptor, bytes(4096))
            os.fdatasync(descriptor)

    took = timed(sync)
    os.close(descriptor)
    return "the disk alone: 4 KiB written and synced", NO_VALUE, _rate(N_SYNCS, took), NO_VALUE


def _writes(folder: Path) -> Iterator[Sequence[str]]:
    singles = [submit([number]) for number in range(10_000)]
    took = write_all(folder / "a.db", singles, n_clients=N_CLIENTS)
    name = f"submits one by one, {N_CLIENTS} clients"
    yield name, "2,000/s", _rate(len(singles), took), _each(len(singles), took)
    n_rows = 50_000
    hundreds = [submit(range(start, start + HUNDRED)) for start in range(0, n_rows, HUNDRED)]
    for n_clients in (1, 4):
        took = write_all(folder / f"b{n_clients}.db", hundreds, n_clients=n_clients)
        name = f"submits by the hundred, clients: {n_clients}"
        yield name, "20,000/s", _rate(n_rows, took), _each(n_rows, took)


def _reads(path: Path, n_jobs: int) -> Iterator[Sequence[str]]:
    starts = range(0, n_jobs, HUNDRED)
    write_all(path, [submit(range(start, start + HUNDRED)) for start in starts], n_clients=1)
    opened: list[SqliteStore] = []
    took = timed(lambda: opened.append(SqliteStore(path)))
    yield f"open, {n_jobs:,} jobs", NO_VALUE, f"{1e3 * took.wall_s:.0f} ms", NO_VALUE
    (store,) = opened
    took = timed(store.load)
    aim = "500 ms" if n_jobs == 1_000 else NO_VALUE
    yield f"load, {n_jobs:,} jobs", aim, f"{1e3 * took.wall_s:.0f} ms", _each(n_jobs, took)
    took = timed(store.jobs)
    yield f"list 100 of {n_jobs:,} jobs", NO_VALUE, f"{1e3 * took.wall_s:.1f} ms", NO_VALUE
    store.close()
    size = path.stat().st_size / n_jobs
    yield f"size, {n_jobs:,} jobs", NO_VALUE, f"{size:.0f} bytes each", NO_VALUE


def _rate(count: int, took: Time) -> str:
    return f"{count / took.wall_s:,.0f}/s"


def _each(count: int, took: Time) -> str:
    return f"{1e6 * took.cpu_s / count:.0f} µs"


def submit(numbers: Sequence[int]) -> Batch:
    """Batches of new jobs with the smallest possible submission."""
    kernel, accepted = Kernel(Rules()), Effects(0.0)
    for number in numbers:
        spec = JobSpec(f"train-{number}", user="ann", project="vision", estimate=Estimate(3600.0))
        effects = kernel.apply(JobSubmitted(job_id(number), spec), 1.7e9 + number)
        accepted.jobs.update(effects.jobs)
        accepted.transitions.extend(effects.transitions)
    sent = tuple(Submission(job_id(each), "ann", 1000, PROGRAM, f"key-{each}") for each in numbers)
    return Batch(accepted, submissions=sent, actor="ann")


def job_id(number: int) -> JobId:
    return JobId(f"j{number:08}")


def write_all(path: Path, batches: Sequence[Batch], *, n_clients: int) -> Time:
    """Write all batches. Each client waits for its answer before the next write."""
    store = SqliteStore(path)
    # Advancing a list's iterator is atomic in CPython, so the clients can share it.
    todo = iter(batches)

    def send() -> None:
        for batch in todo:
            store.write(batch).result()

    def send_all() -> None:
        with ThreadPoolExecutor(n_clients) as clients:
            for each in [clients.submit(send) for _ in range(n_clients)]:
                each.result()

    took = timed(send_all)
    store.close()
    return took


if __name__ == "__main__":
    main()
