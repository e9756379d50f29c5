"""The Kubernetes store writes objects first, then the local file; a replica rebuilds all jobs."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects
from rota.core.model.events import (
    JobCancelled,
    JobSubmitted,
    NodeDrained,
    NodeSeen,
    ProgressReported,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model.job import Job, JobId
from rota.core.scheduling.round import decide
from rota.errors import RotaError, StoreError, WriteRejectedError
from rota.policies.registry import parse
from rota.store.interface import Batch, Deletions
from rota.store.kubernetes.crd_codec import ACCEPTED, SEAL, StatusDetails, seal
from rota.store.kubernetes.fence_fields import fence_fields
from rota.store.kubernetes.store import KubernetesStore
from rota.store.memory import MemoryStore
from rota.store.records import Submission, Token, TokenScope
from tests.support.builders import QUICK, cluster, job
from tests.support.fake_object_api import FakeObjectApi
from tests.support.timeouts import PATIENCE_S

KEY = b"k" * 32
NODES = cluster("1x4")
A, B, C, D = (JobId(8 * each) for each in "abcd")
TOKEN = Token("t1", "hash", "ada", TokenScope.USER, 1.0)

PROGRAM = '{"request":{"command":["p"]}}'

Scenario = Callable[["Site"], Awaitable[None]]


class Site:
    """A kernel whose effects go to a cluster's store."""

    def __init__(self, objects: FakeObjectApi) -> None:
        self.objects = objects
        self.local = MemoryStore()
        self.store = KubernetesStore(self.local, objects, key=KEY, nodes=lambda: NODES)
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

    async def publish_deferred(self) -> None:
        """Write all deferred statuses now."""
        while await self.store._status_writer.publish_deferred():
            pass

    async def rebuilt(self) -> dict[JobId, Job]:
        """Load the objects into a replica with an empty local store."""
        replica = Site(self.objects)
        saved = await asyncio.to_thread(replica.store.load)
        for each in saved.jobs:
            assert replica.local.job(each.id) == each
            assert replica.local.submission(each.id) is not None
        await asyncio.to_thread(replica.store.close)
        return {each.id: each for each in saved.jobs}


def play(scenario: Scenario, objects: FakeObjectApi | None = None) -> FakeObjectApi:
    found = objects or FakeObjectApi()

    async def act() -> None:
        site = Site(found)
        await scenario(site)
        await asyncio.to_thread(site.store.close)

    asyncio.run(act())
    return found


def test_a_submit_is_one_create_and_a_replica_loads_the_job() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        assert site.objects.written == [f"create {A}"]
        assert await site.rebuilt() == {A: site.kernel.jobs[A]}

    play(scenario)


def test_a_fence_is_in_the_status_before_the_acknowledgement() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        status = site.objects.found[A]["status"]
        assert (status["state"], status["fence"]) == ("starting", {"attempt": 1, "generation": 0})
        rebuilt = (await site.rebuilt())[A]
        assert fence_fields(rebuilt) == fence_fields(site.kernel.jobs[A])
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


def test_a_status_keeps_the_accepted_content() -> None:
    """A user who may edit the object may remove its annotations."""

    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        await site.publish_deferred()
        del site.objects.found[A]["metadata"]["annotations"]
        assert set(await site.rebuilt()) == {A}
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        replica.store.set_status_details(A, StatusDetails(reason="told by another"))
        await replica.publish_deferred()
        assert set(await site.rebuilt()) == {A}
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_progress_is_deferred_and_not_lost() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        n_written = len(site.objects.written)
        for n_epochs in range(1, 6):
            told = ProgressReported(A, 1, float(n_epochs), 1.0)
            await site.write(site.kernel.apply(told, site.now))
        assert len(site.objects.written) == n_written
        await site.publish_deferred()
        assert (await site.rebuilt())[A].epochs_done == 5.0
        assert site.objects.written[n_written:] == [f"update {A}", "keep"]

    play(scenario)


def test_the_start_of_workers_is_deferred() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        assert site.objects.written == [f"create {A}", f"update {A}"]
        await site.publish_deferred()
        assert site.objects.found[A]["status"]["state"] == "running"

    play(scenario)


def test_a_restarted_daemon_prefers_newer_local_jobs() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        n_entries = site.local.newest_entry()
        saved = await asyncio.to_thread(site.store.load)
        assert saved.jobs == (site.kernel.jobs[A],)
        assert site.local.newest_entry() == n_entries
        await site.publish_deferred()
        assert site.objects.found[A]["status"]["state"] == "running"

    play(scenario)


def test_a_deferred_status_never_overwrites_a_newer_one() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, gpus=2)
        await site.run(A)
        late = asyncio.create_task(site.publish_deferred())
        await site.write(site.kernel.apply(JobCancelled(A), site.now))
        await late
        assert site.objects.found[A]["status"]["state"] == "stopping"

    play(scenario)


def test_a_submit_of_many_jobs_is_all_or_nothing() -> None:
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

        play(scenario, FakeObjectApi(writes_left=n_writes))


def test_the_first_object_of_a_submit_is_released_last() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, B)
        await site.write(site.kernel.apply(JobCancelled(A), site.now))
        await site.store.remove_finalizer(A, A)
        assert set(await site.rebuilt()) == {B}

    play(scenario)


def test_writes_fail_until_resume_succeeds() -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(StoreError, match="does not answer"):
            await site.submit(A)
        site.objects.writes_left = None
        with pytest.raises(StoreError):
            await site.submit(B)
        await asyncio.wrap_future(site.store.resume())
        await site.submit(C)
        assert set(await site.rebuilt()) == {C}

    play(scenario, FakeObjectApi(writes_left=0))


def test_a_rejected_submit_fails_alone() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        refused, kept = await asyncio.gather(
            site.submit(B, C), site.submit(D), return_exceptions=True
        )
        assert isinstance(refused, WriteRejectedError)
        assert kept is None
        assert set(site.objects.found) == {A, D}
        # By now it was to start; then it is cancelled.
        plan = decide(site.kernel.view(site.now), parse("fifo"))
        await site.write(site.kernel.commit(plan, site.now))
        await site.write(site.kernel.apply_all([JobCancelled(B), JobCancelled(C)], site.now))
        assert site.local.job(B) is site.local.job(C) is site.local.submission(B) is None
        assert set(await site.rebuilt()) == {A, D}

    play(scenario, FakeObjectApi(refuses={B}))


def test_a_rejected_submit_stops_creating_objects() -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(WriteRejectedError):
            await site.submit(*many)
        assert site.objects.found == {}
        tried = [each for each in site.objects.written if each.startswith("create")]
        assert len(tried) < 50

    many = [JobId(f"job{n:05}") for n in range(200)]
    play(scenario, FakeObjectApi(refuses=set(many[3:])))


def test_an_object_of_another_owner_keeps_its_name() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        assert site.objects.found[A]["spec"] == {"command": ["theirs"]}
        assert set(await site.rebuilt()) == {A}

    objects = FakeObjectApi()
    objects.found[A] = {"metadata": {"name": A}, "spec": {"command": ["theirs"]}}
    play(scenario, objects)


def test_a_seal_cannot_be_forged() -> None:
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


def test_an_own_object_matches_name_and_content() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, B)
        told = site.objects.found[A]["metadata"]["annotations"]["rota.dev/accepted"]
        assert site.store.is_own_object(A, A, accepted=told)
        assert not site.store.is_own_object(A, "another", accepted=told)
        assert not site.store.is_own_object(A, A, accepted=told.replace("1000", "0"))
        assert not site.store.is_own_object(B, B, accepted=told)
        assert not site.store.is_own_object(C, C, accepted="")
        assert not site.store.is_own_object(A, A, accepted="")

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
        assert gone.state is JobState.CANCELLED
        assert [each.number for each in replica.local.attempts(A)] == [1]
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_every_replica_loads_the_tokens() -> None:
    async def scenario(site: Site) -> None:
        await asyncio.wrap_future(site.store.write(Batch(rows=(TOKEN,))))
        site.objects.kept |= {"token.broken": "by hand", "later": "{}"}
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        assert replica.local.rows(Token) == [TOKEN]
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_a_deleted_token_is_deleted_for_every_replica() -> None:
    async def scenario(site: Site) -> None:
        await asyncio.wrap_future(site.store.write(Batch(rows=(TOKEN,))))
        gone = Deletions(tokens=(TOKEN.id,))
        await asyncio.wrap_future(site.store.write(Batch(deleted=gone)))
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        assert replica.local.rows(Token) == []
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_every_replica_loads_drained_nodes() -> None:
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


def test_an_object_of_a_user_is_adopted() -> None:
    async def scenario(site: Site) -> None:
        site.store.adopt(A, "mine")
        await site.submit(A)
        found = site.objects.found["mine"]
        assert set(site.objects.found) == {"mine"}
        assert found["metadata"]["finalizers"] == ["rota.dev/job"]
        assert found["status"]["id"] == A
        assert await site.rebuilt() == {A: site.kernel.jobs[A]}
        site.store.set_status_details(A, StatusDetails(reason="waits for ada", progress=0.5))
        assert site.store.status_details(A).progress == 0.5

    objects = FakeObjectApi()
    objects.found["mine"] = {"metadata": {"name": "mine"}, "spec": {"command": ["p"]}}
    play(scenario, objects)


async def ended(site: Site, *ids: JobId) -> dict[str, Any]:
    """Jobs that were accepted and are over by now: their objects, which are gone, as they were
    made."""
    await site.submit(*ids)
    made = copy.deepcopy(site.objects.found)
    await site.write(site.kernel.apply_all(map(JobCancelled, ids), site.now))
    await site.publish_deferred()
    for each in ids:
        await site.store.remove_finalizer(each, each)
    return made


def test_a_restored_object_gets_the_final_status() -> None:
    async def scenario(site: Site) -> None:
        site.objects.found |= await ended(site, A)
        site.objects.kept.clear()
        assert (await asyncio.to_thread(site.store.load)).jobs == ()
        await site.publish_deferred()
        assert site.objects.found[A]["status"]["state"] == "cancelled"
        assert await site.rebuilt() == {}

    play(scenario)


def test_a_restored_object_of_another_daemon_does_not_run_again() -> None:
    async def scenario(site: Site) -> None:
        site.objects.found |= await ended(site, A, B)
        assert await site.rebuilt() == {}
        assert set(site.objects.found) == {A, B}, "who watches them tells why"

    play(scenario)


def test_a_restored_status_does_not_restart_an_ended_job() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        older = copy.deepcopy(site.objects.found)
        site.kernel.apply(JobCancelled(A), site.now)
        await site.write(site.kernel.apply(WorkersLost(A, 1, frozenset({0})), site.now))
        site.objects.found = older
        assert (await asyncio.to_thread(site.store.load)).jobs == ()
        await site.publish_deferred()
        assert site.objects.found[A]["status"]["state"] == "cancelled"

    play(scenario)


def test_jobs_below_the_watermark_are_loaded_after_a_clock_change() -> None:
    async def scenario(site: Site) -> None:
        await ended(site, D)
        await site.submit(A, B)
        assert site.objects.found[A]["status"]["state"] == "queued"
        assert set(await site.rebuilt()) == {A, B}

    play(scenario)


@pytest.mark.parametrize("broken", ['{"of":"a later version"}', "[]", "nothing"])
def test_an_unreadable_job_is_ignored(broken: str) -> None:
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
        again = KubernetesStore(
            site.local, site.objects, key=KEY, nodes=lambda: NODES, ignore_jobs=spared.append
        )
        saved = await asyncio.to_thread(again.load)
        assert [each.id for each in saved.jobs] == [B]
        assert spared == [{A}]
        assert A not in saved.outcomes, "whether it succeeds is not known"
        known = site.local.job(A)
        assert known is not None
        assert known.state is JobState.RUNNING
        assert site.objects.found[A] == before
        await asyncio.to_thread(again.close)

    play(scenario)


def test_another_version_can_still_load_an_unreadable_job() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        notes = site.objects.found[A]["metadata"]["annotations"]
        good, later = dict(notes), '{"of":"a later version"}'
        notes |= {ACCEPTED: later, SEAL: seal(KEY, name=A, text=later)}
        older = Site(site.objects)
        await asyncio.to_thread(older.store.load)
        await older.submit(B)
        await older.publish_deferred()
        site.objects.found[A]["metadata"]["annotations"] = good
        assert set(await site.rebuilt()) == {A, B}
        await asyncio.to_thread(older.store.close)

    play(scenario)


def test_a_seal_counts_only_without_a_status() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.found[A]["status"] = {"state": "refused"}
        assert await site.rebuilt() == {}

    play(scenario)


def test_a_new_object_with_the_name_of_a_deleted_one_is_not_written() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.found[A] = {"metadata": {"name": A}, "spec": {}}
        site.store.forget_object(A)
        await site.write(site.kernel.apply(JobCancelled(A, "kubectl"), site.now))
        assert "status" not in site.objects.found[A]
        assert not site.store.owns_object(A)

    play(scenario)


def test_a_bug_in_the_local_store_fails_writes_until_resume() -> None:
    """Every caller gets a result, so that the daemon notices the failure."""

    async def scenario() -> None:
        site, write = Site(FakeObjectApi()), MemoryStore.write

        def stumble(_: Batch) -> Any:
            raise KeyError("x")

        site.local.write = stumble  # type: ignore[method-assign]
        for each in (A, B):
            with pytest.raises(StoreError, match="KeyError"):
                await asyncio.wait_for(site.submit(each), PATIENCE_S)
        site.local.write = partial(write, site.local)  # type: ignore[method-assign]
        await asyncio.wait_for(asyncio.wrap_future(site.store.resume()), PATIENCE_S)
        await asyncio.wait_for(site.submit(C), PATIENCE_S)
        assert site.local.job(C) is not None
        await asyncio.to_thread(site.store.close)

    asyncio.run(scenario())


def test_a_bug_in_a_status_update_does_not_block_other_jobs() -> None:
    class Stumbling(FakeObjectApi):
        async def update(self, name: str, status: dict[str, Any]) -> bool:
            if name == A:
                raise KeyError(name)
            return await super().update(name, status)

    async def scenario() -> None:
        site = Site(Stumbling())
        await site.submit(A)
        await site.submit(B)
        with capture_logs() as lines:
            await site.publish_deferred()
        assert [each["job"] for each in lines] == [A]
        assert "status" in site.objects.found[B]
        await asyncio.to_thread(site.store.close)

    asyncio.run(scenario())


def test_a_failed_background_task_breaks_the_store() -> None:
    async def scenario() -> None:
        site = Site(FakeObjectApi())
        # A value that is no pending write, as only a bug could queue it.
        site.store._queue.put_nowait("bug")  # type: ignore[arg-type]
        with pytest.raises(RotaError, match="stopped writing"):
            await asyncio.wait_for(site.store.broken(), PATIENCE_S)
        await asyncio.to_thread(site.store.close)

    asyncio.run(scenario())


def test_a_bug_in_the_writer_leaves_no_write_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stumble(_: object) -> None:
        raise KeyError("x")

    async def scenario() -> None:
        site = Site(FakeObjectApi())
        monkeypatch.setattr(site.store, "_skip_until_resumed", stumble)
        writes = [site.store.write(Batch()), site.store.write(Batch())]
        with pytest.raises(RotaError, match="stopped writing"):
            await asyncio.wait_for(site.store.broken(), PATIENCE_S)
        writes += [site.store.write(Batch()), site.store.resume()]
        async with asyncio.timeout(PATIENCE_S):
            for each in writes:
                with pytest.raises(StoreError, match="stopped writing"):
                    await asyncio.wrap_future(each)
        await asyncio.to_thread(site.store.close)

    asyncio.run(scenario())


def test_queries_read_the_local_file() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A, key="k1")
        await site.run(A)
        store, local = site.store, site.local
        assert store.job(A) == local.job(A)
        assert store.jobs(limit=1) == local.jobs(limit=1)
        assert store.submission(A) == local.submission(A)
        assert store.job_with_key("ada", "k1") == A
        assert store.attempts(A) == local.attempts(A)
        assert store.story(A, after=1) == local.story(A, after=1)
        assert store.newest_entry() == local.newest_entry()
        assert store.samples(A) == []
        assert store.rows(Token) == []

    play(scenario)
