"""A replica with an empty disk rebuilds the fence fields of all jobs from their objects."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model.job import Job, JobId
from rota.errors import StoreError
from rota.store.interface import Batch
from rota.store.kubernetes.fence_fields import fence_fields
from rota.store.kubernetes.store import KubernetesStore
from rota.store.memory import MemoryStore
from rota.store.records import SavedState
from tests.support.fake_object_api import FakeObjectApi
from tests.support.seed_counts import count
from tests.support.store_workload import OPENING, Step, StoreWorkload

KEY = b"k" * 32
numbers = st.integers(0, 99)
steps = st.lists(st.tuples(st.integers(0, 9), numbers, numbers), max_size=20)


def opened(objects: FakeObjectApi, local: MemoryStore | None = None) -> KubernetesStore:
    return KubernetesStore(local or MemoryStore(), objects, key=KEY, nodes=tuple)


async def rebuilt(objects: FakeObjectApi, local: MemoryStore | None = None) -> SavedState:
    replica = opened(objects, local)
    saved = await asyncio.to_thread(replica.load)
    await asyncio.to_thread(replica.close)
    return saved


def essences(jobs: dict[JobId, Job]) -> dict[JobId, object]:
    return {each: fence_fields(job) for each, job in jobs.items()}


@settings(max_examples=count(100))
@given(drawn=steps)
def test_a_replica_rebuilds_queue_attempts_and_bookings(drawn: list[Step]) -> None:
    async def scenario() -> None:
        life, objects, local = StoreWorkload(), FakeObjectApi(), MemoryStore()
        store = opened(objects, local)
        for step in (*OPENING, *drawn):
            await asyncio.wrap_future(store.write(step_of(life, step)))
        saved = await rebuilt(objects)
        assert essences({job.id: job for job in saved.jobs}) == essences(dict(life.kernel.jobs))
        # The file of who wrote all this has nothing to learn.
        n_entries = local.newest_entry()
        again = await rebuilt(objects, local)
        assert local.newest_entry() == n_entries
        assert again.outcomes == saved.outcomes
        await asyncio.to_thread(store.close)

    asyncio.run(scenario())


@settings(max_examples=count(100))
@given(drawn=steps, n_writes=st.integers(0, 60))
def test_what_was_acknowledged_before_a_crash_is_known_after_it(
    drawn: list[Step], n_writes: int
) -> None:
    async def scenario() -> None:
        life, objects = StoreWorkload(), FakeObjectApi(writes_left=n_writes)
        store = opened(objects)
        known: dict[JobId, object] = {}
        submitted: set[JobId] = set()
        batch = Batch()
        for step in (*OPENING, *drawn):
            batch = step_of(life, step)
            submitted |= {each.job_id for each in batch.submissions}
            if not await _is_acknowledged(store, batch):
                break
            known = essences(dict(life.kernel.jobs))
        objects.writes_left = None
        found = essences({job.id: job for job in (await rebuilt(objects)).jobs})
        # The failed batch was not acknowledged: any part of it may have arrived.
        sure = known.keys() - batch.effects.jobs.keys()
        assert {each: found.get(each) for each in sure} == {each: known[each] for each in sure}
        assert found.keys() <= submitted
        await asyncio.to_thread(store.close)

    asyncio.run(scenario())


def step_of(life: StoreWorkload, step: Step) -> Batch:
    """With programs that are requests, as those of a daemon are."""
    batch = life.step(step)
    program = '{"request": {"command": ["p"]}}'
    made = tuple(replace(each, program=program) for each in batch.submissions)
    return replace(batch, submissions=made)


async def _is_acknowledged(store: KubernetesStore, batch: Batch) -> bool:
    try:
        await asyncio.wrap_future(store.write(batch))
    except StoreError:
        return False
    return True
