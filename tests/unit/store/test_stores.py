"""The behaviour that all stores share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rota.core.estimation.speed_model import estimated
from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobCancelled, JobSubmitted, WorkersExited
from rota.core.model.job import JobId, JobSpec
from rota.core.model.node import Node
from rota.store.interface import Batch, Deletions, Store
from rota.store.memory import MemoryStore
from rota.store.records import (
    Attempt,
    JobFilter,
    ProfileRecord,
    Project,
    SampleRecord,
    Token,
    TokenScope,
    UsageRecord,
    User,
)
from rota.store.retention import MAX_PROFILES, MAX_SAMPLES
from rota.store.sqlite.store import SqliteStore
from tests.support.store_workload import OPENING, StoreWorkload

FIRST, SECOND = JobId("job-00001"), JobId("job-00002")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "rota.db")
    yield made
    made.close()


@pytest.fixture
def life(store: Store) -> StoreWorkload:
    """Two nodes; the first job runs, the second starts."""
    lived = StoreWorkload()
    for step in OPENING:
        store.write(lived.step(step)).result()
    return lived


def test_an_empty_store(store: Store):
    saved = store.load()
    assert (saved.jobs, saved.nodes, saved.outcomes) == ((), (), {})
    assert store.jobs().jobs == ()
    assert store.job(FIRST) is None
    assert store.submission(FIRST) is None
    assert store.attempts(FIRST) == store.story() == store.rows(Node) == []


def test_a_job_and_its_story(store: Store, life: StoreWorkload):
    job = life.kernel.jobs[FIRST]
    assert store.job(FIRST) == job
    story = store.story(FIRST)
    assert [each.transition.after for each in story] == ["queued", "starting", "running"]
    assert story[0].actor == job.spec.user
    assert [each.number for each in store.story()] == [1, 2, 3, 4, 5]
    assert store.story(after=4) == [story[2]]


def test_an_attempt_and_its_workers(store: Store, life: StoreWorkload):
    (alive,) = store.attempts(FIRST)
    job = life.kernel.jobs[FIRST]
    assert (alive.number, alive.ended_s, alive.outcome) == (1, None, None)
    assert tuple(worker.slot for worker in alive.workers) == job.allocation
    store.write(life.step((4, 0, 4))).result()
    (over,) = store.attempts(FIRST)
    assert over == Attempt(
        FIRST,
        1,
        started_s=alive.started_s,
        ended_s=life.now,
        outcome=JobState.FAILED,
        reason="exit code 1",
        workers=tuple(replace(each, exit_code=1, exited_s=life.now) for each in alive.workers),
    )
    ended = store.job(FIRST)
    assert ended is not None
    assert ended.state is JobState.FAILED
    assert store.load().outcomes == {}, "no job that has not ended depends on it"


@pytest.mark.usefixtures("life")
def test_a_key_names_one_job_of_one_user(store: Store):
    submission = store.submission(FIRST)
    assert submission is not None
    assert submission.key == "key-1"
    assert store.job_with_key(submission.user, "key-1") == FIRST
    assert store.job_with_key("somebody else", "key-1") is None
    assert store.job_with_key(submission.user, "key-9") is None


def test_pages_of_jobs(store: Store, life: StoreWorkload):
    for number in range(5):
        store.write(life.submit(number, 0)).result()
    first = store.jobs(limit=4)
    assert [job.id[-1] for job in first.jobs] == ["7", "6", "5", "4"]
    second = store.jobs(limit=4, before=first.next)
    assert [job.id[-1] for job in second.jobs] == ["3", "2", "1"]
    assert second.next is None
    assert store.jobs(limit=7).next is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (JobFilter(states=frozenset({JobState.RUNNING})), ["1"]),
        (JobFilter(states=frozenset({JobState.RUNNING, JobState.STARTING})), ["2", "1"]),
        (JobFilter(user="ben"), ["2"]),
        (JobFilter(project="speech"), ["2", "1"]),
        (JobFilter(word="train-2"), ["2"]),
        (JobFilter(word="train"), []),
        (JobFilter(word="job-"), ["2", "1"]),
        (JobFilter(word="02"), ["2"]),
        (JobFilter(word="%"), []),
    ],
)
@pytest.mark.usefixtures("life")
def test_jobs_by_filter(store: Store, wanted: JobFilter, found: list[str]):
    assert [job.id[-1] for job in store.jobs(wanted).jobs] == found


ROWS = (
    Project("vision", parent="lab", settings='{"quota": 4}'),
    User("ann", uid=1000, project="vision", is_admin=True),
    Token("t1", "ab" * 32, "ann", TokenScope.READ_ONLY, 5.0, expires_s=9.0),
    UsageRecord("vision", "ann", 3600.0, 1800.0, 5.0),
    ProfileRecord("resnet", estimated(60.0), 5.0),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_rows_are_stored_and_read_back(store: Store, row: Project):
    store.write(Batch(rows=(row,))).result()
    assert store.rows(type(row)) == [row]


def test_a_row_with_the_same_key_is_replaced(store: Store):
    token = Token("t1", "ab" * 32, "ann", TokenScope.USER, 5.0)
    revoked = replace(token, revoked_s=6.0)
    store.write(Batch(rows=(token,))).result()
    store.write(Batch(rows=(revoked, *ROWS[:2]))).result()
    assert store.rows(Token) == [revoked]
    assert store.rows(UsageRecord) == []


def test_a_batch_may_be_written_again(store: Store):
    """After some failures it is unknown whether the batch was committed."""
    batch = StoreWorkload().submit(1, 1)
    store.write(batch).result()
    store.write(batch).result()
    assert len(store.jobs().jobs) == 1


def sample(at_s: float, **fields: Any) -> SampleRecord:
    return SampleRecord(FIRST, 1, at_s, worker=0, workers=2, epochs_done=at_s / 100, **fields)


@pytest.mark.usefixtures("life")
def test_samples_of_a_job(store: Store):
    told = [sample(1.0), sample(2.0, step_s=0.5, metrics={"loss": 0.25, "steps": 3})]
    store.write(Batch(samples=tuple(told))).result()
    assert store.samples(FIRST) == told
    assert store.samples(SECOND) == []


@pytest.mark.usefixtures("life")
def test_samples_of_a_long_run_spread_over_all_of_it(store: Store):
    """Ten times as many as are kept, and a night in the queue in the middle."""
    night_s = 1e5
    times = [float(n) + (night_s if n > 2_500 else 0.0) for n in range(5_000)]
    written = [store.write(Batch(samples=(sample(at_s),))) for at_s in times]
    for each in written:
        each.result()
    kept = [each.at_s for each in store.samples(FIRST)]
    assert MAX_SAMPLES * 0.7 <= len(kept) <= MAX_SAMPLES
    assert (kept[0], kept[-1]) == (times[0], times[-1])
    assert kept == sorted(kept)
    gaps = [after - before for before, after in pairwise(kept)]
    assert sorted(gaps)[-2] <= 40, "besides the night"


def test_the_newest_profiles_are_kept(store: Store):
    speed = estimated(3.0)
    rows = [ProfileRecord(f"{n:05}", speed, float(n)) for n in range(MAX_PROFILES + 3)]
    store.write(Batch(rows=tuple(rows))).result()
    store.write(
        Batch(rows=(ProfileRecord("00003", speed, 1e6), ProfileRecord("new", speed, 1e6)))
    ).result()
    kept = [each.category for each in store.rows(ProfileRecord)]
    assert len(kept) == MAX_PROFILES
    assert (kept[:2], kept[-1]) == (["00003", "00005"], "new")


def end(store: Store, life: StoreWorkload, job_id: JobId, *, code: int) -> None:
    """All workers of the job exit."""
    job = life.kernel.jobs[job_id]
    told = WorkersExited(job_id, job.attempt, dict.fromkeys(job.numbers, code))
    store.write(Batch(life.kernel.apply(told, life.now))).result()


def ended_in_order(store: Store, life: StoreWorkload) -> None:
    """The first job ends, then the second one, then a third is submitted."""
    for job_id in (FIRST, SECOND):
        life.now += 10.0
        store.write(Batch(life.kernel.apply(JobCancelled(job_id, "eve"), life.now))).result()
        end(store, life, job_id, code=143)
    store.write(life.submit(3, 0)).result()


def test_a_start_loads_the_outcomes_that_live_jobs_depend_on(store: Store, life: StoreWorkload):
    told = JobSubmitted(JobId("late"), JobSpec("late", after=(FIRST,)), is_held=True)
    store.write(Batch(life.kernel.apply(told, life.now))).result()
    for job_id in (FIRST, SECOND):
        end(store, life, job_id, code=0)
    assert store.load().outcomes == {FIRST: JobState.SUCCEEDED}


def test_jobs_expire_in_the_order_of_their_ends(store: Store, life: StoreWorkload):
    ended_in_order(store, life)
    first_s = life.now - 10.0
    assert store.expired_jobs(first_s, keep=(), limit=9) == []
    assert store.expired_jobs(life.now, keep=(), limit=9) == [FIRST]
    assert store.expired_jobs(life.now + 1, keep=(), limit=9) == [FIRST, SECOND]
    assert store.expired_jobs(life.now + 1, keep=(), limit=1) == [FIRST]
    assert store.expired_jobs(life.now + 1, keep={FIRST}, limit=9) == [SECOND]


def test_the_newest_job_and_the_job_of_the_newest_entry_stay(store: Store, life: StoreWorkload):
    ended_in_order(store, life)
    third = JobId("job-00003")
    store.write(Batch(life.kernel.apply(JobCancelled(third, "eve"), life.now))).result()
    assert third not in store.expired_jobs(life.now + 1, keep=(), limit=9)


def test_a_deleted_job_leaves_nothing_behind(store: Store, life: StoreWorkload):
    ended_in_order(store, life)
    token = Token("t", "5e", "ann", TokenScope.JOB, 5.0, FIRST)
    usage = UsageRecord("vision", "ann", 7200.0, 3600.0, 20.0)
    store.write(Batch(rows=(token, usage), samples=(SampleRecord(FIRST, 1, 5.0, 0, 1, 1.0),)))
    newest, rest = store.newest_entry(), store.story(SECOND)
    for _ in range(2):
        store.write(Batch(deleted=Deletions(jobs=(FIRST,)))).result()
    assert store.job(FIRST) is None
    assert store.submission(FIRST) is None
    assert store.job_with_key("eve", "key-1") is None
    assert store.attempts(FIRST) == store.story(FIRST) == store.samples(FIRST) == []
    assert store.rows(Token) == []
    assert store.rows(UsageRecord) == [usage], "usage totals survive"
    assert (store.newest_entry(), store.story(SECOND)) == (newest, rest)
    assert store.story(after=newest - 1) != []


def test_the_newest_entry_of_a_job_expires_with_the_job(store: Store, life: StoreWorkload):
    ended_in_order(store, life)
    expired = store.expired_entries(life.now + 1, limit=99)
    newest = {job_id: store.story(job_id)[-1].number for job_id in (FIRST, SECOND)}
    assert expired == sorted(set(range(1, store.newest_entry())) - set(newest.values()))
    store.write(Batch(deleted=Deletions(entries=tuple(expired)))).result()
    assert [each.number for each in store.story(FIRST)] == [newest[FIRST]]
    assert store.expired_entries(life.now + 1, limit=99) == []


def test_words_find_jobs_by_name_and_id(store: Store):
    names = ("train", "train[0]", "training", "a.b")
    specs = {JobId(f"0000{n}abc"): JobSpec(name) for n, name in enumerate(names)}
    kernel = StoreWorkload().kernel
    told = [JobSubmitted(job_id, spec) for job_id, spec in specs.items()]
    store.write(Batch(kernel.apply_all(told, 5.0))).result()

    def found(word: str) -> list[str]:
        return [job.spec.name for job in reversed(store.jobs(JobFilter(word=word)).jobs)]

    assert found("train") == ["train"]
    assert found("train[") == ["train[0]"]
    assert found("00001") == found("1abc") == found("00001abc") == ["train[0]"]
    assert found("abc") == found("0000") == list(names)
    assert found("9abc") == found("tr") == []


def test_a_common_part_is_stored_once_and_deleted_with_its_last_job(
    store: Store, life: StoreWorkload
):
    common = '{"command": ["' + "x" * 1000 + '"]}'
    batches = [life.submit(number, number) for number in (1, 2)]
    jobs: list[JobId] = []
    for number, batch in enumerate(batches):
        own = replace(
            batch.submissions[0], program=str(number), common=common, user="ann", key=None
        )
        store.write(replace(batch, submissions=(own,))).result()
        assert store.submission(own.job_id) == own
        jobs.append(own.job_id)
    before = store.request_bytes()["ann"]
    store.write(Batch(deleted=Deletions(jobs=(jobs[0],)))).result()
    assert store.request_bytes()["ann"] == before - 1
    kept = store.submission(jobs[1])
    assert kept is not None
    assert kept.common == common
    store.write(Batch(deleted=Deletions(jobs=(jobs[1],)))).result()
    assert store.request_bytes()["ann"] == before - len(common) - 2
