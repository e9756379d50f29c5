"""An admission rule rejects the status of one job: the job ends for every daemon.

Other jobs are not affected."""

import asyncio
import math
from contextlib import suppress

import pytest

from rota.core.lifecycle.states import JobState, Purpose
from rota.core.model.events import (
    JobCancelled,
    NodeSeen,
    ProgressReported,
    WorkersExited,
    WorkersLost,
)
from rota.core.model.job import Ended, Job, JobId, Stopping
from rota.core.scheduling.round import decide
from rota.errors import FenceRejectedError, StoreError, UnavailableError, WriteRejectedError
from rota.policies.registry import parse
from rota.store.kubernetes import rejected_endings
from rota.store.kubernetes.rejected_endings import PREFIX
from tests.support.fake_object_api import FakeObjectApi, Object
from tests.unit.store.kubernetes.test_store import NODES, A, B, C, D, Site, ended, play

REFUSED = "not in this lab"


async def start_all(site: Site) -> None:
    await site.write(site.kernel.apply_all(map(NodeSeen, NODES), site.now))
    plan = decide(site.kernel.view(site.now), parse("fifo"))
    await site.write(site.kernel.commit(plan, site.now))


async def end_here(site: Site, job_id: JobId, *, code: int = 0) -> None:
    attempt = site.kernel.jobs[job_id].attempt
    await site.write(site.kernel.apply(WorkersExited(job_id, attempt, {0: code}), site.now))


def known(site: Site, job_id: JobId) -> Job:
    job = site.local.job(job_id)
    assert job is not None
    return job


def ends_kept(site: Site) -> set[str]:
    return {each.removeprefix(PREFIX) for each in site.objects.kept if each.startswith(PREFIX)}


def rejection_reports(site: Site) -> list[str]:
    return [each for each in site.objects.written if each.startswith("complain")]


def test_a_rejected_fence_stops_only_its_job() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.submit(B)
        site.objects.mute = {A}
        with pytest.raises(FenceRejectedError, match=REFUSED) as refusal:
            await start_all(site)
        assert set(refusal.value.jobs) == {A}
        assert site.objects.found[B]["status"]["fence"]["attempt"] == 1
        await site.write(site.kernel.apply(JobCancelled(A, reason=REFUSED), site.now))
        await site.write(site.kernel.apply(WorkersLost(A, 1, frozenset({0})), site.now))
        assert known(site, A).phase == Ended(site.now, JobState.CANCELLED, REFUSED)
        assert set(await site.rebuilt()) == {B}
        assert len(rejection_reports(site)) == 1

    play(scenario)


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (1, "failed")])
def test_a_rejected_end_holds_for_every_daemon(code: int, state: str) -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.objects.mute = {A}
        await end_here(site, A, code=code)
        assert site.objects.found[A]["status"]["state"] == "starting"
        replica = Site(site.objects)
        saved = await asyncio.to_thread(replica.store.load)
        assert (saved.jobs, saved.outcomes[A].value) == ((), state)
        await replica.publish_deferred()
        assert ends_kept(replica) == {A}
        site.objects.mute.clear()
        replica.store._status_writer._endings_retried_s = -math.inf
        await replica.publish_deferred()
        assert site.objects.found[A]["status"]["state"] == state
        replica.store._status_writer._watermark_written_s = -math.inf
        await replica.publish_deferred()
        assert ends_kept(replica) == set(), "its object says so by now"
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_the_next_daemon_continues_a_rejected_cancel() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.objects.mute = {A}
        await site.write(site.kernel.apply(JobCancelled(A, "ada"), site.now))
        assert known(site, A).state is JobState.STOPPING
        rebuilt = (await site.rebuilt())[A]
        assert isinstance(rebuilt.phase, Stopping)
        assert rebuilt.phase.purpose is Purpose.CANCEL
        assert rebuilt.members == known(site, A).members, "held until its workers are gone"

    play(scenario)


def test_a_rejected_status_does_not_block_other_jobs() -> None:
    """A running job with a rejected progress status continues."""

    async def scenario(site: Site) -> None:
        for each in (A, B):
            await site.submit(each)
        await start_all(site)
        site.objects.mute = {A}
        for n_epochs in (1.0, 2.0):
            for each in (A, B):
                told = ProgressReported(each, 1, n_epochs, 1.0)
                await site.write(site.kernel.apply(told, site.now))
            await site.publish_deferred()
        rebuilt = await site.rebuilt()
        assert (rebuilt[A].epochs_done, rebuilt[B].epochs_done) == (0.0, 2.0)
        assert len(rejection_reports(site)) == 1, "once, however often it is tried"

    play(scenario)


def test_the_row_of_an_end_is_deleted_with_its_object() -> None:
    async def scenario(site: Site) -> None:
        for each in (A, B):
            await site.submit(each)
        await start_all(site)
        site.objects.mute = {A, B}
        for each in (A, B):
            await end_here(site, each)
        assert ends_kept(site) == {A, B}
        del site.objects.found[A]
        site.store.forget_object(A)
        await site.publish_deferred()
        assert ends_kept(site) == {B}
        del site.objects.found[B]
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        await replica.publish_deferred()
        assert ends_kept(site) == set()
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_a_rejected_end_without_any_status_holds_for_every_daemon() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.mute = {A}
        await site.write(site.kernel.apply(JobCancelled(A, "ada"), site.now))
        await site.submit(B)
        await site.publish_deferred()
        assert site.objects.kept["settled"] == B, "it keeps no later one from being known"
        replica = Site(site.objects)
        saved = await asyncio.to_thread(replica.store.load)
        assert saved.outcomes[A] is JobState.CANCELLED
        site.objects.mute.clear()
        await replica.publish_deferred()
        assert site.objects.found[A]["status"]["state"] == "cancelled"
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_an_adopted_object_with_a_rejected_status_is_released() -> None:
    async def scenario(site: Site) -> None:
        site.store.adopt(A, "mine")
        with pytest.raises(WriteRejectedError, match=REFUSED):
            await site.submit(A)
        assert "let go mine" in site.objects.written
        assert "remove mine" not in site.objects.written
        await site.submit(B)
        assert set(await site.rebuilt()) == {B}

    objects = FakeObjectApi()
    objects.found["mine"] = {"metadata": {"name": "mine"}, "spec": {"command": ["p"]}}
    objects.mute = {"mine"}
    play(scenario, objects)


def test_a_submit_below_the_watermark_needs_its_status() -> None:
    """After the clock went back, the new ids are below the watermark."""

    async def scenario(site: Site) -> None:
        await ended(site, D)
        site.objects.mute = {B}
        with pytest.raises(WriteRejectedError, match=REFUSED):
            await site.submit(A, B)
        await site.submit(C)
        assert set(await site.rebuilt()) == set(site.objects.found) == {C}

    play(scenario)


def test_an_unreadable_row_of_an_end_is_ignored() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.kept[f"{PREFIX}{A}"] = "by hand"
        assert set(await site.rebuilt()) == {A}

    play(scenario)


def test_a_failing_status_update_does_not_block_other_jobs() -> None:
    class Stubborn(FakeObjectApi):
        async def update(self, name: str, status: Object) -> bool:
            if name == A:
                raise UnavailableError("not this one, not now")
            return await super().update(name, status)

    others = [JobId(f"1q1ghcx{n}") for n in range(8)]

    async def scenario(site: Site) -> None:
        for each in (A, *others):
            await site.submit(each)
        for _ in others:
            with suppress(UnavailableError):
                await site.publish_deferred()
        told = {name for name, each in site.objects.found.items() if "status" in each}
        assert told == set(others)

    play(scenario, Stubborn())


def test_a_rejected_fence_does_not_reject_the_submit() -> None:
    async def scenario(site: Site) -> None:
        site.objects.mute = {A}
        await site.write(site.kernel.apply_all(map(NodeSeen, NODES), site.now))
        submit = asyncio.ensure_future(site.submit(A, B))
        await asyncio.sleep(0)
        # In one go with the submit, as while the cluster is slow.
        with pytest.raises(FenceRejectedError) as unfenced:
            await start_all(site)
        await submit
        assert set(unfenced.value.jobs) == {A}
        assert {each for each in (A, B) if site.local.job(each)} == {A, B}

    play(scenario)


def test_an_ended_job_without_object_is_forgotten() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await start_all(site)
        site.objects.mute = {A}
        await end_here(site, A)
        del site.objects.found[A]
        site.store.forget_object(A)
        assert not site.store._status_writer.is_known(A)

    play(scenario)


def test_thousands_of_rejected_ends_leave_room_in_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a job without a row is the deletion of its object: it never runs again."""
    monkeypatch.setattr(rejected_endings, "MAX_BYTES", 400)
    monkeypatch.setattr(rejected_endings, "SHORT_AFTER_BYTES", 200)

    async def scenario(site: Site) -> None:
        for each in (A, B, C, D):
            await site.submit(each)
        site.objects.mute = {A, B, C, D}
        for each in (A, B, C, D):
            await site.write(site.kernel.apply(JobCancelled(each, reason="x" * 500), site.now))
        kept = {name: text for name, text in site.objects.kept.items() if name.startswith(PREFIX)}
        assert sum(len(name) + len(text) for name, text in kept.items()) <= 400
        assert 0 < len(kept) < 4
        assert {*site.objects.found} == ends_kept(site)
        replica = Site(site.objects)
        saved = await asyncio.to_thread(replica.store.load)
        assert saved.jobs == ()

    play(scenario)


def test_the_end_of_a_job_does_not_wait_for_a_failing_webhook() -> None:
    """It is in a shared row. A start waits, because a rejected start would cancel the job."""

    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.objects.webhook_down = {A}
        await end_here(site, A)
        assert ends_kept(site) == {A}
        await site.submit(B)
        site.objects.webhook_down = {B}
        with pytest.raises(StoreError, match="failed calling webhook"):
            await start_all(site)

    play(scenario)
