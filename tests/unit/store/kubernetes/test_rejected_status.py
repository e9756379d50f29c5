"""A rule of the cluster that refuses the status of one job: that job ends, for every daemon, and
nobody else notices."""

import asyncio
import math
from contextlib import suppress

import pytest

from rota.core.events import (
    JobCancelled,
    NodeSeen,
    ProgressReported,
    WorkersExited,
    WorkersLost,
)
from rota.core.model import Ended, Job, JobId, Purpose, Stopping
from rota.core.round import decide
from rota.core.states import State
from rota.errors import NotKeptError, UnavailableError, UnfencedError
from rota.policies.registry import parse
from rota.store.untold import PREFIX
from tests.objects import Object, Objects
from tests.unit.store.test_cluster import NODES, A, B, C, D, Site, ended, play

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


def complaints(site: Site) -> list[str]:
    return [each for each in site.objects.written if each.startswith("complain")]


def test_a_start_whose_fence_is_refused_counts_for_nobody_but_that_job() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.submit(B)
        site.objects.mute = {A}
        with pytest.raises(UnfencedError, match=REFUSED) as refusal:
            await start_all(site)
        assert set(refusal.value.jobs) == {A}
        assert site.objects.found[B]["status"]["fence"]["attempt"] == 1
        await site.write(site.kernel.apply(JobCancelled(A, reason=REFUSED), site.now))
        await site.write(site.kernel.apply(WorkersLost(A, 1, frozenset({0})), site.now))
        assert known(site, A).phase == Ended(site.now, State.CANCELLED, REFUSED)
        assert set(await site.rebuilt()) == {B}
        assert len(complaints(site)) == 1

    play(scenario)


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (1, "failed")])
def test_an_end_that_is_refused_is_an_end_for_every_daemon(code: int, state: str) -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.objects.mute = {A}
        await end_here(site, A, code=code)
        assert site.objects.found[A]["status"]["state"] == "starting"
        replica = Site(site.objects)
        saved = await asyncio.to_thread(replica.store.load)
        assert (saved.jobs, saved.outcomes[A].value) == ((), state)
        await replica.tell_late()
        assert ends_kept(replica) == {A}
        site.objects.mute.clear()
        replica.store._publisher._again_s = -math.inf
        await replica.tell_late()
        assert site.objects.found[A]["status"]["state"] == state
        replica.store._publisher._settled_s = -math.inf
        await replica.tell_late()
        assert ends_kept(replica) == set(), "its object says so by now"
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_a_cancel_that_is_refused_is_heeded_by_the_next_daemon() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await site.run(A)
        site.objects.mute = {A}
        await site.write(site.kernel.apply(JobCancelled(A, "ada"), site.now))
        assert known(site, A).state is State.STOPPING
        rebuilt = (await site.rebuilt())[A]
        assert isinstance(rebuilt.phase, Stopping)
        assert rebuilt.phase.purpose is Purpose.CANCEL
        assert rebuilt.members == known(site, A).members, "held until its workers are gone"

    play(scenario)


def test_what_only_one_job_may_not_say_is_said_of_the_others() -> None:
    """Nor does it end a job that runs."""

    async def scenario(site: Site) -> None:
        for each in (A, B):
            await site.submit(each)
        await start_all(site)
        site.objects.mute = {A}
        for n_epochs in (1.0, 2.0):
            for each in (A, B):
                told = ProgressReported(each, 1, n_epochs, 1.0)
                await site.write(site.kernel.apply(told, site.now))
            await site.tell_late()
        rebuilt = await site.rebuilt()
        assert (rebuilt[A].epochs_done, rebuilt[B].epochs_done) == (0.0, 2.0)
        assert len(complaints(site)) == 1, "once, however often it is tried"

    play(scenario)


def test_an_end_that_nobody_has_to_know_any_more_is_not_kept() -> None:
    async def scenario(site: Site) -> None:
        for each in (A, B):
            await site.submit(each)
        await start_all(site)
        site.objects.mute = {A, B}
        for each in (A, B):
            await end_here(site, each)
        assert ends_kept(site) == {A, B}
        del site.objects.found[A]
        site.store.lose(A)
        await site.tell_late()
        assert ends_kept(site) == {B}
        del site.objects.found[B]
        replica = Site(site.objects)
        await asyncio.to_thread(replica.store.load)
        await replica.tell_late()
        assert ends_kept(site) == set()
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_a_job_that_never_had_a_status_is_over_for_every_daemon_too() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.mute = {A}
        await site.write(site.kernel.apply(JobCancelled(A, "ada"), site.now))
        await site.submit(B)
        await site.tell_late()
        assert site.objects.kept["settled"] == B, "it keeps no later one from being known"
        replica = Site(site.objects)
        saved = await asyncio.to_thread(replica.store.load)
        assert saved.outcomes[A] is State.CANCELLED
        site.objects.mute.clear()
        await replica.tell_late()
        assert site.objects.found[A]["status"]["state"] == "cancelled"
        await asyncio.to_thread(replica.store.close)

    play(scenario)


def test_what_people_made_is_not_removed_when_it_may_not_have_a_status() -> None:
    async def scenario(site: Site) -> None:
        site.store.adopt(A, "mine")
        with pytest.raises(NotKeptError, match=REFUSED):
            await site.submit(A)
        assert "let go mine" in site.objects.written
        assert "remove mine" not in site.objects.written
        await site.submit(B)
        assert set(await site.rebuilt()) == {B}

    objects = Objects()
    objects.found["mine"] = {"metadata": {"name": "mine"}, "spec": {"command": ["p"]}}
    objects.mute = {"mine"}
    play(scenario, objects)


def test_a_submit_that_needs_a_status_at_once_is_refused_without_one() -> None:
    """After a clock went back nobody would know it without."""

    async def scenario(site: Site) -> None:
        await ended(site, D)
        site.objects.mute = {B}
        with pytest.raises(NotKeptError, match=REFUSED):
            await site.submit(A, B)
        await site.submit(C)
        assert set(await site.rebuilt()) == set(site.objects.found) == {C}

    play(scenario)


def test_an_end_that_somebody_edited_by_hand_is_left_out() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        site.objects.kept[f"{PREFIX}{A}"] = "by hand"
        assert set(await site.rebuilt()) == {A}

    play(scenario)


def test_what_cannot_be_told_of_one_job_keeps_no_other_waiting() -> None:
    class Stubborn(Objects):
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
                await site.tell_late()
        told = {name for name, each in site.objects.found.items() if "status" in each}
        assert told == set(others)

    play(scenario, Stubborn())


def test_a_fence_that_is_refused_at_once_is_no_refusal_of_the_submit() -> None:
    async def scenario(site: Site) -> None:
        site.objects.mute = {A}
        await site.write(site.kernel.apply_all(map(NodeSeen, NODES), site.now))
        submit = asyncio.ensure_future(site.submit(A, B))
        await asyncio.sleep(0)
        # In one go with the submit, as while the cluster is slow.
        with pytest.raises(UnfencedError) as unfenced:
            await start_all(site)
        await submit
        assert set(unfenced.value.jobs) == {A}
        assert {each for each in (A, B) if site.local.job(each)} == {A, B}

    play(scenario)


def test_one_that_is_over_and_gone_is_forgotten() -> None:
    async def scenario(site: Site) -> None:
        await site.submit(A)
        await start_all(site)
        site.objects.mute = {A}
        await end_here(site, A)
        del site.objects.found[A]
        site.store.lose(A)
        assert not site.store._publisher.knows(A)

    play(scenario)
