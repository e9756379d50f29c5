"""The store of a cluster: objects first, then the file; a replica with nothing rebuilds all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from rota.core.effects import Effects
from rota.core.events import (
    JobCancelled,
    JobSubmitted,
    NodeDrained,
    NodeSeen,
    ProgressReported,
    WorkersLost,
    WorkersStarted,
)
from rota.core.kernel import Kernel
from rota.core.model import Job, JobId, Slot, Starting
from rota.core.round import decide
from rota.core.states import State
from rota.errors import StoreError
from rota.policies.registry import parse
from rota.store.base import Batch
from rota.store.cluster import ClusterStore
from rota.store.fences import essence
from rota.store.memory import MemoryStore
from rota.store.records import Scope, Submission, Token
from rota.store.training_jobs import Shown
from tests.builders import QUICK, cluster, job
from tests.objects import Objects

KEY = b"k" * 32
NODES = cluster("1x4")
A, B, C = JobId("aaaaaaaa"), JobId("bbbbbbbb"), JobId("cccccccc")
TOKEN = Token("t1", "hash", "ada", Scope.USER, 1.0)

PROGRAM = '{"request":{"command":["p"]}}'

Scenario = Callable[["Site"], Awaitable[None]]


class Site:
    """A kernel whose effects go to a cluster's store."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.local = MemoryStore()
        self.pods: dict[JobId, tuple[Slot, float]] = {}
        self.store = ClusterStore(
            self.local,
            objects,
            key=KEY,
            nodes=lambda: NODES,
            first_workers=lambda: self.pods,
        )
        self.kernel = Kernel(QUICK)
        self.now = 100.0

    async def submit(
        self, *ids: JobId, key: str | None = None, gpus: int = 1, program: str = PROGRAM
    ) -> None:
        events = [JobSubmitted(each, job(each, gpus, user="ada")) for each in ids]
        submissions = [
            Submission(each, "ada", 1000, program, key if n == 0 else None)
            for n, each in enumerate(ids)
        ]
        await self.write(self.kernel.apply_all(events, self.now), submissions)

    async def write(self, effects: Effects, submissions: list[Submission] | None = None) -> None:
        batch = Batch(effects, tuple(submissions or ()))
        await asyncio.wrap_future(self.store.write(batch))

    async def run(self, job_id: JobId) -> None:
        await self.write(self.kernel.apply_all(map(NodeSeen, NODES), self.now))
        plan = decide(self.kernel.view(self.now), parse("fifo"))
        await self.write(self.kernel.commit(plan, self.now))
        numbers = frozenset(self.kernel.jobs[job_id].numbers)
        told = WorkersStarted(job_id, self.kernel.jobs[job_id].attempt, numbers)
        await self.write(self.kernel.apply(told, self.now))

    async def tell_late(self) -> None:
        """What is told now and then, at once."""
        while await self.store._publisher.publish_late():
            pass

    async def rebuilt(self) -> dict[JobId, Job]:
        """What a replica without anything makes of the objects."""
        replica = Site(self.objects)
        replica.pods = self.pods
        saved = await asyncio.to_thread(replica.store.load)
        for each in saved.jobs:
            assert replica.local.job(each.id) == each
            assert replica.local.submission(each.id) is not None
        await asyncio.to_thread(replica.store.close)
        return {each.id: each for each in saved.jobs}


def play(scenario: Scenario, objects: Objects | None = None) -> Objects:
    found = objects or Objects()

    async def act() -> None:
        site = Site(found)
        await scenario(site)
        await asyncio.to_thread(site.store.close)

    asyncio.run(act())
    return found


def test_a_submit_is_one_create_and_a_replica_knows_the_job() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        assert site.objects.written == [f"create {A}"]
        assert await site.rebuilt() == {A: site.kernel.jobs[A]}

    play(scenario)


def test_a_fence_is_in_the_status_before_a_batch_counts() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        status = site.objects.found[A]["status"]
        assert (status["state"], status["fence"]) == ("starting", {"attempt": 1, "generation": 0})
        rebuilt = (await site.rebuilt())[A]
        assert essence(rebuilt) == essence(site.kernel.jobs[A])
        attempts = site.local.attempts(A)
        assert [each.number for each in attempts] == [1]

    play(scenario)


def test_the_pod_of_a_first_worker_is_its_fence() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        assert site.objects.written == [f"create {A}"]
        # Killed before its pod was made: it has not begun.
        assert (await site.rebuilt())[A].state is State.QUEUED
        site.pods[A] = site.kernel.jobs[A].allocation[0], 100.5
        rebuilt = (await site.rebuilt())[A]
        assert essence(rebuilt) == essence(site.kernel.jobs[A])
        assert rebuilt.phase == Starting(100.5, site.kernel.jobs[A].allocation)

    play(scenario)


def test_a_status_counts_for_more_than_a_pod() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.pods[A] = site.kernel.jobs[A].allocation[0], 100.5
        await site.write(site.kernel.apply(JobCancelled(A), site.now))
        assert site.objects.found[A]["status"]["state"] == "stopping"
        assert (await site.rebuilt())[A].state is State.STOPPING

    play(scenario)


def test_who_found_a_job_fences_its_first_worker() -> None:
    """Somebody who commanded before may still have an order for it on the way."""

    async def scenario(site: Site) -> None:
        await site.submit(A)
        await asyncio.to_thread(site.store.load)
        await site.run(A)
        assert site.objects.found[A]["status"]["fence"]["attempt"] == 1

    play(scenario)


def test_a_job_that_stands_for_somebodys_pod_is_fenced() -> None:
    """That pod is there before the job has begun, and tells nothing."""

    async def scenario(site: Site) -> None:
        await site.submit(A, program='{"request":{"command":["p"]},"pod":"mine/uid"}')
        await site.run(A)
        assert site.objects.found[A]["status"]["fence"]["attempt"] == 1

    play(scenario)


def test_a_second_attempt_is_fenced() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        await site.write(site.kernel.apply(WorkersLost(A, 1, frozenset({0})), site.now))
        await site.run(A)
        assert site.objects.found[A]["status"]["fence"]["attempt"] == 2

    play(scenario)


def test_progress_alone_waits_and_is_not_lost() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        n_written = len(site.objects.written)
        for n_epochs in range(1, 6):
            told = ProgressReported(A, 1, float(n_epochs), 1.0)
            await site.write(site.kernel.apply(told, site.now))
        assert len(site.objects.written) == n_written
        await site.tell_late()
        assert (await site.rebuilt())[A].epochs_done == 5.0
        assert site.objects.written[n_written:] == [f"update {A}"]

    play(scenario)


def test_that_workers_have_started_is_told_later() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        assert site.objects.written == [f"create {A}", f"update {A}"]
        await site.tell_late()
        assert site.objects.found[A]["status"]["state"] == "running"

    play(scenario)


def test_a_daemon_that_comes_back_knows_more_than_the_objects() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.pods[A] = site.kernel.jobs[A].allocation[0], site.now
        n_entries = site.local.newest_entry()
        saved = await asyncio.to_thread(site.store.load)
        assert saved.jobs == (site.kernel.jobs[A],)
        assert site.local.newest_entry() == n_entries
        await site.tell_late()
        assert site.objects.found[A]["status"]["state"] == "running"

    play(scenario)


def test_what_is_told_late_is_never_older_than_what_was_told() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        late = asyncio.create_task(site.tell_late())
        await site.write(site.kernel.apply(JobCancelled(A), site.now))
        await late
        assert site.objects.found[A]["status"]["state"] == "stopping"

    play(scenario)


def test_of_a_submit_of_many_all_count_or_none() -> None:
    for n_writes in range(4):

        async def scenario(site: Site, n_writes: int = n_writes) -> None:
            try:
                await site.submit(A, B, C)
            except StoreError:
                assert n_writes < 3
            site.objects.writes_left = None
            expected = {A, B, C} if n_writes >= 3 else set[JobId]()
            assert set(await site.rebuilt()) == expected
            assert set(site.objects.found) == expected

        play(scenario, Objects(writes_left=n_writes))


def test_the_proof_of_a_submit_goes_last() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, B)
        await site.write(site.kernel.apply(JobCancelled(A), site.now))
        await site.store.let_go(A, A)
        assert set(await site.rebuilt()) == {B}

    play(scenario)


def test_what_cannot_be_written_fails_until_it_can() -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(StoreError, match="does not answer"):
            await site.submit(A)
        site.objects.writes_left = None
        with pytest.raises(StoreError):
            await site.submit(B)
        await asyncio.wrap_future(site.store.resume())
        await site.submit(C)
        assert set(await site.rebuilt()) == {C}

    play(scenario, Objects(writes_left=0))


def test_somebody_elses_object_of_the_same_name_is_left_alone() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        assert site.objects.found[A]["spec"] == {"command": ["theirs"]}
        assert set(await site.rebuilt()) == {A}

    objects = Objects()
    objects.found[A] = {"metadata": {"name": A}, "spec": {"command": ["theirs"]}}
    play(scenario, objects)


def test_what_was_accepted_cannot_be_forged() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        made = site.objects.found.pop(A)
        moved = {**made, "metadata": {**made["metadata"], "name": "another"}}
        edited = {**made["metadata"]["annotations"]}
        edited["rota.dev/accepted"] = edited["rota.dev/accepted"].replace("1000", "0")
        site.objects.found["another"] = moved
        site.objects.found[A] = {**made, "metadata": {**made["metadata"], "annotations": edited}}
        assert await site.rebuilt() == {}

    play(scenario)


def test_what_we_made_is_known_by_its_name_and_every_word_of_it() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, B)
        told = site.objects.found[A]["metadata"]["annotations"]["rota.dev/accepted"]
        assert site.store.has_made(A, A, accepted=told)
        assert not site.store.has_made(A, "another", accepted=told)
        assert not site.store.has_made(A, A, accepted=told.replace("1000", "0"))
        assert not site.store.has_made(B, B, accepted=told)
        assert not site.store.has_made(C, C, accepted="")
        await site.run(A)
        await site.tell_late()
        assert not site.store.has_made(A, A, accepted=""), "its status says more"

    play(scenario)


def test_a_replica_whose_file_is_old_catches_up() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.submit(B)
        old = site.kernel.jobs[B]
        await site.run(A)
        site.objects.found.pop(B)
        replica = Site(site.objects)
        effects = Effects(1.0, jobs={B: old})
        replica.local.write(Batch(effects))
        await asyncio.to_thread(replica.store.load)
        gone = replica.local.job(B)
        assert gone is not None
        assert gone.state is State.CANCELLED
        assert [each.number for each in replica.local.attempts(A)] == [1]
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_tokens_are_known_to_every_replica() -> None:
    async def scenario(site: Site) -> None:
        await asyncio.wrap_future(site.store.write(Batch(rows=(TOKEN,))))
        site.objects.kept |= {"token.broken": "by hand", "later": "{}"}
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        assert replica.local.rows(Token) == [TOKEN]
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_a_drained_node_is_known_to_every_replica_until_it_is_resumed() -> None:
    async def scenario(site: Site) -> None:
        async def draining() -> list[bool]:
            replica = Site(site.objects)
            saved = await asyncio.to_thread(replica.store.load)
            await asyncio.to_thread(replica.store.close)
            return [node.is_draining for node in saved.nodes]

        [node] = NODES
        await site.write(site.kernel.apply(NodeSeen(node), site.now))
        assert await draining() == [False]
        await site.write(site.kernel.apply(NodeDrained(node.id), site.now))
        assert await draining() == [True]
        await site.write(site.kernel.apply(NodeSeen(node), site.now))
        assert await draining() == [False]
        n_kept = site.objects.written.count("keep")
        await site.write(site.kernel.apply(NodeSeen(replace(node, cpus=7.0)), site.now))
        assert site.objects.written.count("keep") == n_kept

    play(scenario)


def test_an_object_that_people_made_is_taken_over() -> None:
    async def scenario(site: Site) -> None:
        site.store.adopt(A, "mine")
        await site.submit(A)
        found = site.objects.found["mine"]
        assert set(site.objects.found) == {"mine"}
        assert found["metadata"]["finalizers"] == ["rota.dev/job"]
        assert found["status"]["id"] == A
        assert await site.rebuilt() == {A: site.kernel.jobs[A]}
        site.store.show(A, Shown(reason="waits for ada", progress=0.5))
        assert site.store.shown(A).progress == 0.5

    objects = Objects()
    objects.found["mine"] = {"metadata": {"name": "mine"}, "spec": {"command": ["p"]}}
    play(scenario, objects)
