"""The order in which logs are read: ended and requested pods first, to the end, and never of a
deleted pod."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from rota.engines.interface import LogLimits, WorkerId
from rota.engines.kubernetes.logs import collector
from rota.engines.kubernetes.logs.collector import LogCollector
from rota.engines.kubernetes.pods.state import pod_state_of
from rota.kube.client import KubeClient
from tests.support.kube_objects import WORKER, pod
from tests.unit.kube.test_client import with_server

TURNS = 20
BODY = pod_state_of(pod("Running", spec={"nodeName": "n1"}), WORKER)
FIRST, SECOND = (f"2026-11-16T08:21:08.00000000{n}Z line {n}\n" for n in (1, 2))
NO_LOG = "unable to retrieve container logs for containerd://7bb854f2e8723"

Scenario = Callable[[LogCollector, set[WorkerId]], Awaitable[None]]
Play = Callable[[Scenario, Iterable[str]], list[str]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """With commands that never leave a lull, and one answer of the node after the other, nothing in
    the end; what was asked for."""

    async def never(_: KubeClient) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(KubeClient, "wait_idle", never)
    monkeypatch.setattr(collector, "retry_delay_s", lambda _: 0.0)

    def run(scenario: Scenario, answers: Iterable[str]) -> list[str]:
        asked, said = list[str](), iter(answers)

        async def answer(request: web.Request) -> web.StreamResponse:
            asked.append(f"{request.method} {request.path}")
            return web.Response(text=next(said, ""))

        async def act(cluster: KubeClient) -> None:
            over: set[WorkerId] = set()
            log_collector = LogCollector(
                cluster, tmp_path, limits=LogLimits(), is_over=over.__contains__
            )
            await scenario(log_collector, over)
            await log_collector.close()

        asyncio.run(with_server(answer, act))
        return asked

    return run


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_running_pod_waits_for_commands(
    play: Play,
) -> None:
    async def scenario(log_collector: LogCollector, _: set[WorkerId]) -> None:
        log_collector.follow(BODY)
        await turns()
        assert log_collector.is_following(WORKER)

    assert play(scenario, []) == []


def test_an_ended_pod_is_read_at_once(
    play: Play,
) -> None:
    async def scenario(log_collector: LogCollector, over: set[WorkerId]) -> None:
        log_collector.follow(BODY)
        await turns()
        over.add(WORKER)
        log_collector.follow(BODY)
        await log_collector.finished(WORKER)
        assert not log_collector.is_following(WORKER)

    assert play(scenario, []) == [f"GET /api/v1/namespaces/lab/pods/{BODY.name}/log"]


def test_a_deleted_pod_is_not_read(play: Play) -> None:
    async def scenario(log_collector: LogCollector, _: set[WorkerId]) -> None:
        log_collector.follow(BODY)
        await turns()
        log_collector.give_up(WORKER)
        assert not log_collector.is_following(WORKER)
        log_collector.give_up(WORKER)
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
def test_an_ended_pod_is_read_to_the_end(play: Play, tmp_path: Path, answers: list[str]) -> None:
    async def scenario(log_collector: LogCollector, over: set[WorkerId]) -> None:
        over.add(WORKER)
        log_collector.follow(BODY)
        await log_collector.finished(WORKER)
        assert not log_collector.is_following(WORKER)

    assert len(play(scenario, answers)) == 3
    [log] = tmp_path.rglob("worker-0.log")
    assert log.read_text() == "line 1\nline 2\n"


def test_missing_output_is_given_up(
    play: Play,
) -> None:
    async def scenario(log_collector: LogCollector, over: set[WorkerId]) -> None:
        over.add(WORKER)
        log_collector.follow(BODY)
        await log_collector.finished(WORKER)
        assert not log_collector.is_following(WORKER)

    assert len(play(scenario, [NO_LOG] * 9)) == 3


def test_earlier_failures_do_not_count_at_the_end(play: Play, tmp_path: Path) -> None:
    is_over = list[set[WorkerId]]()

    def said() -> Iterator[str]:
        yield from [NO_LOG] * 5
        is_over[0].add(WORKER)
        yield from [NO_LOG, NO_LOG, NO_LOG, FIRST, NO_LOG, FIRST + SECOND]

    async def scenario(log_collector: LogCollector, over: set[WorkerId]) -> None:
        is_over.append(over)
        log_collector.follow(BODY, is_requested=True)
        await log_collector.finished(WORKER)
        assert not log_collector.is_following(WORKER)

    play(scenario, said())
    [log] = tmp_path.rglob("worker-0.log")
    assert log.read_text() == "line 1\nline 2\n"
