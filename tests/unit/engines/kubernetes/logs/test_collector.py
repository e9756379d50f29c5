"""Whose output is read when: at once where it is over or asked for, to the very end, and never of
a pod that is gone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from rota.engines.base import WorkerId
from rota.engines.kubernetes import logs
from rota.engines.kubernetes.api import Cluster
from rota.engines.kubernetes.bodies import body_of
from rota.engines.kubernetes.logs import Followers
from tests.unit.engines.kubernetes.objects import WORKER, pod
from tests.unit.engines.kubernetes.test_api import with_server

TURNS = 20
BODY = body_of(pod("Running", spec={"nodeName": "n1"}), WORKER)
FIRST, SECOND = (f"2026-11-16T08:21:08.00000000{n}Z line {n}\n" for n in (1, 2))
NO_LOG = "unable to retrieve container logs for containerd://7bb854f2e8723"

Scenario = Callable[[Followers, set[WorkerId]], Awaitable[None]]
Play = Callable[[Scenario, Iterable[str]], list[str]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """With commands that never leave a lull, and one answer of the node after the other, nothing in
    the end; what was asked for."""

    async def never(_: Cluster) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Cluster, "lull", never)
    monkeypatch.setattr(logs, "wait_s", lambda _: 0.0)

    def run(scenario: Scenario, answers: Iterable[str]) -> list[str]:
        asked, said = list[str](), iter(answers)

        async def answer(request: web.Request) -> web.StreamResponse:
            asked.append(f"{request.method} {request.path}")
            return web.Response(text=next(said, ""))

        async def act(cluster: Cluster) -> None:
            over: set[WorkerId] = set()
            followers = Followers(cluster, tmp_path, is_over=over.__contains__)
            await scenario(followers, over)
            await followers.close()

        asyncio.run(with_server(answer, act))
        return asked

    return run


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_running_pod_waits_until_those_who_command_have_nothing_to_ask(
    play: Play,
) -> None:
    async def scenario(followers: Followers, _: set[WorkerId]) -> None:
        followers.follow(BODY)
        await turns()
        assert followers.is_following(WORKER)

    assert play(scenario, []) == []


def test_what_is_over_is_read_before_anything_else_happens_to_it(
    play: Play,
) -> None:
    async def scenario(followers: Followers, over: set[WorkerId]) -> None:
        followers.follow(BODY)
        await turns()
        over.add(WORKER)
        followers.follow(BODY)
        await followers.finished(WORKER)
        assert not followers.is_following(WORKER)

    assert play(scenario, []) == [f"GET /api/v1/namespaces/lab/pods/{BODY.name}/log"]


def test_a_pod_that_is_gone_is_not_asked_for(play: Play) -> None:
    async def scenario(followers: Followers, _: set[WorkerId]) -> None:
        followers.follow(BODY)
        await turns()
        followers.give_up(WORKER)
        assert not followers.is_following(WORKER)
        followers.give_up(WORKER)
        await turns()

    assert play(scenario, []) == []


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([FIRST, FIRST + SECOND], id="a stream that broke and does not say so"),
        pytest.param([FIRST + SECOND[:-3], SECOND], id="in the middle of a line"),
        pytest.param([FIRST + SECOND[:9], SECOND], id="in the middle of a moment"),
        pytest.param([FIRST + NO_LOG, FIRST + SECOND], id="a node that cannot read it just now"),
        pytest.param([NO_LOG, FIRST + SECOND], id="not even the first of it"),
    ],
)
def test_what_is_over_is_read_until_there_is_no_more(
    play: Play, tmp_path: Path, answers: list[str]
) -> None:
    async def scenario(followers: Followers, over: set[WorkerId]) -> None:
        over.add(WORKER)
        followers.follow(BODY)
        await followers.finished(WORKER)
        assert not followers.is_following(WORKER)

    assert len(play(scenario, answers)) == 3
    [log] = tmp_path.rglob("worker-0.log")
    assert log.read_text() == "line 1\nline 2\n"


def test_output_that_a_node_does_not_have_any_more_is_not_asked_for_without_end(
    play: Play,
) -> None:
    async def scenario(followers: Followers, over: set[WorkerId]) -> None:
        over.add(WORKER)
        followers.follow(BODY)
        await followers.finished(WORKER)
        assert not followers.is_following(WORKER)

    assert len(play(scenario, [NO_LOG] * 9)) == 3


def test_what_went_wrong_while_it_ran_is_not_held_against_its_last_output(
    play: Play, tmp_path: Path
) -> None:
    is_over = list[set[WorkerId]]()

    def said() -> Iterator[str]:
        yield from [NO_LOG] * 5
        is_over[0].add(WORKER)
        yield from [NO_LOG, NO_LOG, NO_LOG, FIRST, NO_LOG, FIRST + SECOND]

    async def scenario(followers: Followers, over: set[WorkerId]) -> None:
        is_over.append(over)
        followers.follow(BODY, is_asked=True)
        await followers.finished(WORKER)
        assert not followers.is_following(WORKER)

    play(scenario, said())
    [log] = tmp_path.rglob("worker-0.log")
    assert log.read_text() == "line 1\nline 2\n"
