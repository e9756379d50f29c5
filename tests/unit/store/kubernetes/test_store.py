"""The store of a cluster: objects first, then the file; a replica with nothing rebuilds all."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

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
from rota.core.model import Job, JobId
from rota.core.round import decide
from rota.core.states import State
from rota.errors import NotKeptError, StoreError
from rota.policies.registry import parse
from rota.store.base import Batch
from rota.store.cluster import ClusterStore
from rota.store.fences import essence
from rota.store.memory import MemoryStore
from rota.store.records import Scope, Submission, Token
from rota.store.training_jobs import ACCEPTED, SEAL, Shown, seal
from tests.builders import QUICK, cluster, job
from tests.objects import Objects

KEY = b"k" * 32
NODES = cluster("1x4")
A, B, C, D = (JobId(8 * each) for each in "abcd")
TOKEN = Token("t1", "hash", "ada", Scope.USER, 1.0)

PROGRAM = '{"request":{"command":["p"]}}'

Scenario = Callable[["Site"], Awaitable[None]]


class Site:
    """A kernel whose effects go to a cluster's store."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.local = MemoryStore()
        self.store = ClusterStore(self.local, objects, key=KEY, nodes=lambda: NODES)
        self.kernel = Kernel(QUICK)
        self.now = 100.0

    async def submit(self, *ids: JobId, key: str | None = None, gpus: int = 1) -> None:
        events = [JobSubmitted(each, job(each, gpus, user="ada")) for each in ids]
        submissions = [
            Submission(each, "ada", 1000, PROGRAM, key if n == 0 else None)
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
        await site.submit(A)
        await site.run(A)
        status = site.objects.found[A]["status"]
        assert (status["state"], status["fence"]) == ("starting", {"attempt": 1, "generation": 0})
        rebuilt = (await site.rebuilt())[A]
        assert essence(rebuilt) == essence(site.kernel.jobs[A])
        attempts = site.local.attempts(A)
        assert [each.number for each in attempts] == [1]

    play(scenario)


def test_every_attempt_is_fenced() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        await site.write(site.kernel.apply(WorkersLost(A, 1, frozenset({0})), site.now))
        await site.run(A)
        assert site.objects.found[A]["status"]["fence"]["attempt"] == 2

    play(scenario)


def test_a_status_says_for_ever_what_was_accepted() -> None:
    """Whoever may edit the object may take its annotations away."""

    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        await site.tell_late()
        del site.objects.found[A]["metadata"]["annotations"]
        assert set(await site.rebuilt()) == {A}
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        replica.store.show(A, Shown(reason="told by another"))
        await replica.tell_late()
        assert set(await site.rebuilt()) == {A}
        await asyncio.to_thread(replica.store.close)

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
        assert site.objects.written[n_written:] == [f"update {A}", "keep"]

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


def test_what_the_cluster_refuses_is_the_trouble_of_that_submit_alone() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        refused, kept = await asyncio.gather(
            site.submit(B, C), site.submit(D), return_exceptions=True
        )
        assert isinstance(refused, NotKeptError)
        assert kept is None
        assert set(site.objects.found) == {A, D}
        # By now it was to start; then it is cancelled.
        plan = decide(site.kernel.view(site.now), parse("fifo"))
        await site.write(site.kernel.commit(plan, site.now))
        await site.write(site.kernel.apply_all([JobCancelled(B), JobCancelled(C)], site.now))
        assert site.local.job(B) is site.local.job(C) is site.local.submission(B) is None
        assert set(await site.rebuilt()) == {A, D}

    play(scenario, Objects(refuses={B}))


def test_of_what_is_refused_no_more_is_asked_for() -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(NotKeptError):
            await site.submit(*many)
        assert site.objects.found == {}
        tried = [each for each in site.objects.written if each.startswith("create")]
        assert len(tried) < 50

    many = [JobId(f"job{n:05}") for n in range(200)]
    play(scenario, Objects(refuses=set(many[3:])))


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
        assert not site.store.has_made(A, A, accepted="")

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


async def ended(site: Site, *ids: JobId) -> dict[str, Any]:
    """Jobs that were accepted and are over by now: their objects, which are gone, as they were
    made."""
    await site.submit(*ids)
    made = copy.deepcopy(site.objects.found)
    await site.write(site.kernel.apply_all(map(JobCancelled, ids), site.now))
    await site.tell_late()
    for each in ids:
        await site.store.let_go(each, each)
    return made


def test_an_object_that_is_put_back_is_told_how_its_job_ended() -> None:
    async def scenario(site: Site) -> None:
        site.objects.found |= await ended(site, A)
        site.objects.kept.clear()
        assert (await asyncio.to_thread(site.store.load)).jobs == ()
        await site.tell_late()
        assert site.objects.found[A]["status"]["state"] == "cancelled"
        assert await site.rebuilt() == {}

    play(scenario)


def test_what_ended_under_another_daemon_is_not_run_again() -> None:
    async def scenario(site: Site) -> None:
        site.objects.found |= await ended(site, A, B)
        assert await site.rebuilt() == {}
        assert set(site.objects.found) == {A, B}, "who watches them tells why"

    play(scenario)


def test_a_status_that_a_backup_put_back_does_not_wake_what_is_over() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        older = copy.deepcopy(site.objects.found)
        site.kernel.apply(JobCancelled(A), site.now)
        await site.write(site.kernel.apply(WorkersLost(A, 1, frozenset({0})), site.now))
        site.objects.found = older
        assert (await asyncio.to_thread(site.store.load)).jobs == ()
        await site.tell_late()
        assert site.objects.found[A]["status"]["state"] == "cancelled"

    play(scenario)


def test_after_a_clock_went_back_jobs_are_known_all_the_same() -> None:
    async def scenario(site: Site) -> None:
        await ended(site, D)
        await site.submit(A, B)
        assert site.objects.found[A]["status"]["state"] == "queued"
        assert set(await site.rebuilt()) == {A, B}

    play(scenario)


@pytest.mark.parametrize("broken", ['{"of":"a later version"}', "[]", "nothing"])
def test_one_that_cannot_be_read_is_set_aside(broken: str) -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        await site.write(
            site.kernel.apply(JobSubmitted(B, job(B, user="ada", after=(A,))), site.now),
            [Submission(B, "ada", 1000, PROGRAM)],
        )
        site.objects.found[A]["status"]["record"] = broken
        before = copy.deepcopy(site.objects.found[A])
        spared: list[frozenset[JobId]] = []
        again = ClusterStore(
            site.local, site.objects, key=KEY, nodes=lambda: NODES, spare=spared.append
        )
        saved = await asyncio.to_thread(again.load)
        assert [each.id for each in saved.jobs] == [B]
        assert spared == [{A}]
        assert A not in saved.outcomes, "whether it succeeds is not known"
        known = site.local.job(A)
        assert known is not None
        assert known.state is State.RUNNING
        assert site.objects.found[A] == before
        await asyncio.to_thread(again.close)

    play(scenario)


def test_one_that_only_another_version_can_read_still_counts_for_that_one() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        notes = site.objects.found[A]["metadata"]["annotations"]
        good, later = dict(notes), '{"of":"a later version"}'
        notes |= {ACCEPTED: later, SEAL: seal(KEY, name=A, text=later)}
        older = Site(site.objects)
        await asyncio.to_thread(older.store.load)
        await older.submit(B)
        await older.tell_late()
        site.objects.found[A]["metadata"]["annotations"] = good
        assert set(await site.rebuilt()) == {A, B}
        await asyncio.to_thread(older.store.close)

    play(scenario)


def test_a_seal_counts_until_something_else_is_said() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.found[A]["status"] = {"state": "refused"}
        assert await site.rebuilt() == {}

    play(scenario)


def test_nothing_is_written_to_a_namesake_of_an_object_that_is_gone() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.found[A] = {"metadata": {"name": A}, "spec": {}}
        site.store.lose(A)
        await site.write(site.kernel.apply(JobCancelled(A, "kubectl"), site.now))
        assert "status" not in site.objects.found[A]
        assert not site.store.is_publishing(A)

    play(scenario)


def test_a_bug_in_the_file_is_answered_and_writing_goes_on_from_the_next_resume() -> None:
    """Whoever waits would wait for ever, and the daemon seem well."""

    async def scenario() -> None:
        site, write = Site(Objects()), MemoryStore.write

        def stumble(_: Batch) -> Any:
            raise KeyError("x")

        site.local.write = stumble  # type: ignore[method-assign]
        for each in (A, B):
            with pytest.raises(StoreError, match="KeyError"):
                await asyncio.wait_for(site.submit(each), 30)
        site.local.write = partial(write, site.local)  # type: ignore[method-assign]
        await asyncio.wait_for(asyncio.wrap_future(site.store.resume()), 30)
        await asyncio.wait_for(site.submit(C), 30)
        assert site.local.job(C) is not None
        await asyncio.to_thread(site.store.close)

    asyncio.run(scenario())


def test_a_status_that_cannot_be_told_keeps_no_other_waiting() -> None:
    class Stumbling(Objects):
        async def update(self, name: str, status: dict[str, Any]) -> bool:
            if name == A:
                raise KeyError(name)
            return await super().update(name, status)

    async def scenario() -> None:
        site = Site(Stumbling())
        await site.submit(A)
        await site.submit(B)
        with capture_logs() as lines:
            await site.tell_late()
        assert [each["job"] for each in lines] == [A]
        assert "status" in site.objects.found[B]
        await asyncio.to_thread(site.store.close)

    asyncio.run(scenario())
