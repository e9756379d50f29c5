"""A store that has lost its newest writes, and engines that still run what was written."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import StartWorkers, StopWorkers
from rota.core.model.events import WorkersExited
from rota.core.model.job import Job, JobId, Stopping
from rota.daemon.runtime.lost_jobs import LostJobs, find_lost, record_of
from rota.engines.interface import FoundStart, JobRecord
from rota.errors import StoreError
from rota.store.interface import Batch
from rota.store.memory import MemoryStore
from rota.store.records import SavedState, Submission
from tests.support.builders import Lab, cluster, job

A = JobId("a")
SUBMISSION = Submission(A, "ada", 1000, "{}")


class Records:
    """What the engine recorded."""

    def __init__(self, *found: FoundStart) -> None:
        self.found = found
        self.after: list[JobId | None] = []

    def recorded_starts(self, *, after: JobId | None) -> Sequence[FoundStart]:
        self.after.append(after)
        return self.found


@pytest.fixture
def lab() -> Lab:
    """A job that starts."""
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", 2, user="ada"))
    lab.round()
    return lab


def start_of(found: Job, *, is_running: bool = True, is_stopped: bool = False) -> FoundStart:
    record = record_of(found, replace(SUBMISSION, job_id=found.id))
    return FoundStart(found.id, found.attempt, record, is_running=is_running, is_stopped=is_stopped)


def lost(store: MemoryStore, *found: FoundStart) -> LostJobs:
    return find_lost(store.load(), store, records=Records(*found))


def test_a_job_that_the_store_knows_is_not_lost(lab: Lab) -> None:
    records = Records(start_of(lab.job("a")))
    assert find_lost(lab.store.load(), lab.store, records=records) == LostJobs()
    assert records.after == [A]


def test_a_job_that_the_store_has_lost_is_adopted(lab: Lab) -> None:
    found = lost(MemoryStore(), start_of(lab.job("a")))
    assert [each.job for each in found.jobs] == [lab.job("a")]
    assert found.submissions == (SUBMISSION,)
    assert found.warnings == ("the store has lost the job a of ada: adopted",)


def test_a_start_that_the_store_has_lost_is_adopted() -> None:
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", 2, user="ada"))
    older = MemoryStore()
    queued = lab.job("a")
    effects = lab.kernel.apply_all((), 0.0)
    effects.jobs[A] = queued
    older.write(Batch(effects)).result()
    lab.round()
    found = lost(older, start_of(lab.job("a")))
    assert [(each.job.attempt, each.stored) for each in found.jobs] == [(1, queued)]
    assert found.warnings == ("the store has lost attempt 1 of the job a of ada: adopted",)


def test_a_job_that_is_over_is_not_adopted(lab: Lab) -> None:
    start = start_of(lab.job("a"))
    lab.exited("a")
    found = lost(lab.store, start)
    assert (found.jobs, found.warnings) == ((), ("job a is over, but still runs: it is stopped",))
    assert lost(lab.store, replace(start, is_running=False)) == LostJobs()


@pytest.mark.parametrize(
    "record",
    [
        None,
        JobRecord("", ""),
        JobRecord('{"v":2}', '{"v":2}'),
        JobRecord("[]", "[]"),
    ],
)
def test_workers_without_a_usable_record_are_named(record: JobRecord | None) -> None:
    found = lost(MemoryStore(), FoundStart(A, 1, record, is_running=True))
    assert found.jobs == ()
    assert "there is no usable record of it" in found.warnings[0]


@pytest.mark.parametrize("change", [{"job_id": JobId("b")}, {"attempt": 7}])
def test_a_record_of_another_start_is_not_used(lab: Lab, change: dict[str, object]) -> None:
    start = replace(start_of(lab.job("a")), **change)  # pyright: ignore[reportArgumentType]
    assert lost(MemoryStore(), start).jobs == ()


def test_a_lost_stop_holds_the_job(lab: Lab) -> None:
    [found] = lost(MemoryStore(), start_of(lab.job("a"), is_stopped=True)).jobs
    assert isinstance(found.job.phase, Stopping)
    later = Lab()
    effects = later.kernel.recover([found], cluster("1x2"), outcomes={}, now=5.0)
    assert [type(each) for each in effects.commands] == [StopWorkers]
    later.store.write(Batch(effects)).result()
    later.tell(WorkersExited(A, 1, {0: 143, 1: 143}))
    assert later.state("a") is JobState.HELD


def test_an_adopted_job_goes_on(lab: Lab) -> None:
    """It is written with its history, its workers get their command again, and its end counts."""
    starting = lab.job("a")
    found = lost(MemoryStore(), start_of(starting)).jobs
    later = Lab()
    effects = later.kernel.recover(found, cluster("1x2"), outcomes={}, now=5.0)
    assert effects.commands == [StartWorkers(A, 1, 0, starting.allocation)]
    [row] = effects.transitions
    assert (row.before, row.after, row.cause) == (None, JobState.STARTING, "JobAdopted")
    later.store.write(Batch(effects, submissions=(SUBMISSION,))).result()
    assert [each.number for each in later.store.attempts(A)] == [1]
    assert later.store.load().nodes == cluster("1x2")
    later.round()
    assert later.state("a") is JobState.STARTING, "no round takes its GPUs away"
    later.exited("a")
    assert later.state("a") is JobState.SUCCEEDED


def test_an_adopted_start_ends_the_start_that_the_store_knows(lab: Lab) -> None:
    """The rows of an end and of the next start were lost."""
    lab.started("a")
    running = lab.job("a")
    second = replace(running, attempt=2)
    found = lost(lab.store, start_of(second)).jobs
    later = Kernel(lab.kernel.rules)
    effects = later.recover(found, cluster("1x2"), outcomes={}, now=5.0)
    rows = [(each.attempt, each.before, each.after) for each in effects.transitions]
    assert rows == [
        (1, JobState.RUNNING, JobState.QUEUED),
        (2, JobState.QUEUED, JobState.RUNNING),
    ]
    lab.store.write(Batch(effects)).result()
    attempts = lab.store.attempts(A)
    assert [(each.number, each.ended_s) for each in attempts] == [(1, 5.0), (2, None)]


def unreadable(store: MemoryStore) -> SavedState:
    return replace(store.load(), jobs=(), unreadable={A: "damaged"})


def test_a_running_job_whose_row_cannot_be_read_is_adopted(lab: Lab) -> None:
    records = Records(start_of(lab.job("a")))
    found = find_lost(unreadable(lab.store), lab.store, records=records)
    assert [each.job.id for each in found.jobs] == [A]
    assert "cannot read the running job a" in found.warnings[0]


def test_without_a_record_no_job_starts_beside_a_running_job_that_cannot_be_read(lab: Lab) -> None:
    start = replace(start_of(lab.job("a")), record=None)
    with pytest.raises(StoreError, match="job a runs, and the store cannot read it: damaged"):
        find_lost(unreadable(lab.store), lab.store, records=Records(start))
    over = replace(start, is_running=False)
    assert find_lost(unreadable(lab.store), lab.store, records=Records(over)) == LostJobs()
