"""Measures the stored size of a job's samples after one hour and after ten."""

from __future__ import annotations

from pathlib import Path

from benchmarks.store import job_id, submit
from benchmarks.trainer.load import METRICS
from rota.daemon.training.worker_progress import SAMPLE_EVERY_S, SAMPLE_LEAST_S
from rota.store.interface import Batch
from rota.store.records import SampleRecord
from rota.store.sqlite.store import SqliteStore

HOUR_S = 3600
BEGAN_S = 1.7e9
N_JOBS = 4
AT_ONCE_S = 120
"""Of samples in a write."""


def kept_bytes(folder: Path) -> dict[str, list[float]]:
    """Interval of samples -> bytes of a job after one hour and after ten."""
    return {
        f"{every_s:g} s": [bytes_of_job(folder, every_s, hours=hours) for hours in (1, 10)]
        for every_s in (SAMPLE_EVERY_S, SAMPLE_LEAST_S)
    }


def bytes_of_job(folder: Path, every_s: float, *, hours: int) -> float:
    path = folder / f"{every_s:g}-{hours}.db"
    numbers = range(N_JOBS)
    write(path, [submit(numbers)])
    before = path.stat().st_size
    write(
        path,
        [
            Batch(samples=tuple(sample(each, at_s + n * every_s) for n in range(n_samples)))
            for n_samples in [round(AT_ONCE_S / every_s)]
            for at_s in range(0, hours * HOUR_S, AT_ONCE_S)
            for each in numbers
        ],
    )
    return (path.stat().st_size - before) / N_JOBS


def write(path: Path, batches: list[Batch]) -> None:
    store = SqliteStore(path)
    for done in [store.write(batch) for batch in batches]:
        done.result()
    store.close()


def sample(number: int, at_s: float) -> SampleRecord:
    return SampleRecord(
        job_id(number),
        1,
        BEGAN_S + at_s,
        worker=0,
        workers=1,
        epochs_done=at_s / 300.0,
        step_s=0.1 + 1e-5 * at_s,
        samples_per_s=320.0 + 1e-3 * at_s,
        memory_bytes=2 * 1024**3,
        metrics={name: value / (1 + at_s) for name, value in METRICS.items()},
    )
