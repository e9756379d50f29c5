"""Every store gives the same answers after the same writes."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future
from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.core.model.node import Node
from rota.core.scheduling.view import Rules
from rota.store.interface import Batch, Store
from rota.store.memory import MemoryStore
from rota.store.records import JobFilter, SampleRecord
from rota.store.retention import MAX_SAMPLES
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import OPENING, Step, StoreWorkload

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Here nothing depends on the disk, and it would take most of the time."""

numbers = st.integers(0, 99)
steps = st.lists(st.tuples(st.integers(0, 9), numbers, numbers), max_size=60)
filters = st.builds(
    JobFilter,
    states=st.frozensets(st.sampled_from(JobState), max_size=3),
    user=st.sampled_from(["", "ann", "nobody"]),
    project=st.sampled_from(["", "vision"]),
    word=st.sampled_from(["", "job", "3", "train-1", "job-00002", "%", "job_"]),
)


@given(drawn=steps, wanted=filters, limit=st.integers(1, 5))
def test_sqlite_answers_as_memory_does(drawn: list[Step], wanted: JobFilter, limit: int):
    life, memory = StoreWorkload(), MemoryStore()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / "rota.db"
        sqlite = SqliteStore(path)
        written: list[Future[None]] = []
        for step in (*OPENING, *drawn):
            batch = life.step(step)
            memory.write(batch).result()
            written.append(sqlite.write(batch))
        for each in written:
            each.result()
        same_answers(memory, sqlite, life)
        same_pages(memory, sqlite, wanted, limit)
        sqlite.close()
        assert check(path) == []
        reopened = SqliteStore(path)
        same_answers(memory, reopened, life)
        reopened.close()


@given(gaps=st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0, 900.0]), min_size=1, max_size=9))
def test_sqlite_thins_samples_as_memory_does(gaps: list[float]):
    life, memory = StoreWorkload(), MemoryStore()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        sqlite = SqliteStore(Path(folder) / "rota.db")
        for step in OPENING:
            batch = life.step(step)
            memory.write(batch).result()
            sqlite.write(batch).result()
        job_id = next(iter(life.kernel.jobs))
        times = accumulate(gaps * (2 * MAX_SAMPLES // len(gaps)))
        drawn = [SampleRecord(job_id, 1, at_s, 0, 1, 0.0) for at_s in times]
        for store in (memory, sqlite):
            store.write(Batch(samples=tuple(drawn))).result()
        assert sqlite.samples(job_id) == memory.samples(job_id)
        sqlite.close()


def same_answers(memory: Store, sqlite: Store, life: StoreWorkload) -> None:
    saved = sqlite.load()
    assert saved == memory.load()
    assert saved.jobs == tuple(life.kernel.jobs.values())
    assert {each.id: each for each in sqlite.rows(Node)} == life.kernel.nodes
    assert sqlite.story() == memory.story()
    assert sqlite.story(after=3, limit=2) == memory.story(after=3, limit=2)
    for job_id in (*saved.outcomes, *(job.id for job in saved.jobs), JobId("nobody")):
        assert sqlite.job(job_id) == memory.job(job_id)
        assert sqlite.submission(job_id) == memory.submission(job_id)
        assert sqlite.attempts(job_id) == memory.attempts(job_id)
        assert sqlite.story(job_id) == memory.story(job_id)
    recovered = Kernel(Rules())
    recovered.recover(saved.jobs, saved.nodes, outcomes=saved.outcomes, now=life.now)
    assert recovered.jobs == life.kernel.jobs


def same_pages(memory: Store, sqlite: Store, wanted: JobFilter, limit: int) -> None:
    before, n_pages = None, 0
    while n_pages == 0 or before is not None:
        page = sqlite.jobs(wanted, before=before, limit=limit)
        assert page == memory.jobs(wanted, before=before, limit=limit)
        before, n_pages = page.next, n_pages + 1
