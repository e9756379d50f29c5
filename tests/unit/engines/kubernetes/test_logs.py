"""Whose output is read when: at once where it is over or asked for, and never of a pod that is
gone."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rota.engines.base import WorkerId
from rota.engines.kubernetes.api import Cluster
from rota.engines.kubernetes.bodies import body_of
from rota.engines.kubernetes.logs import Followers
from tests.unit.engines.kubernetes.objects import WORKER, Object, pod
from tests.unit.engines.kubernetes.test_api import Answer, served

LINE: Answer = 200, [{"": "not a moment"}]
TURNS = 20
BODY = body_of(pod("Running", spec={"nodeName": "n1"}), WORKER)

Play = Callable[[Followers, set[WorkerId]], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], list[str]]:
    """With commands that never leave a lull; what was asked for."""

    async def never(_: Cluster) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Cluster, "lull", never)

    def run(scenario: Play) -> list[str]:
        async def act(cluster: Cluster) -> None:
            over: set[WorkerId] = set()
            followers = Followers(cluster, tmp_path, is_over=over.__contains__)
            await scenario(followers, over)
            await followers.close()

        answers: list[tuple[int, Object | list[Object]]] = [LINE] * 3
        return served(answers, act)

    return run


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_running_pod_waits_until_those_who_command_have_nothing_to_ask(
    play: Callable[[Play], list[str]],
) -> None:
    async def scenario(followers: Followers, _: set[WorkerId]) -> None:
        followers.follow(BODY)
        await turns()
        assert followers.is_following(WORKER)

    assert play(scenario) == []


def test_what_is_over_is_read_before_anything_else_happens_to_it(
    play: Callable[[Play], list[str]],
) -> None:
    async def scenario(followers: Followers, over: set[WorkerId]) -> None:
        followers.follow(BODY)
        await turns()
        over.add(WORKER)
        followers.follow(BODY)
        await followers.finished(WORKER)
        assert not followers.is_following(WORKER)

    assert play(scenario) == [f"GET /api/v1/namespaces/lab/pods/{BODY.name}/log"]


def test_a_pod_that_is_gone_is_not_asked_for(play: Callable[[Play], list[str]]) -> None:
    async def scenario(followers: Followers, _: set[WorkerId]) -> None:
        followers.follow(BODY)
        await turns()
        followers.give_up(WORKER)
        assert not followers.is_following(WORKER)
        followers.give_up(WORKER)
        await turns()

    assert play(scenario) == []
