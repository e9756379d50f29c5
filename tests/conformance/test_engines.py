"""The scenarios. Each is a conversation: orders to the engine, and the facts that must follow."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from rota.core.commands import (
    ChangeMembership,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.events import WorkersExited, WorkersFound, WorkersLost, WorkersStarted
from rota.core.model import JobId, NodeId, Slot
from rota.engines.base import LogQuery, WorkerId
from rota.errors import UserError
from tests.conformance.stages import ENGINES, REAL_ENGINES, RealStage, Stage, Work

JOB = JobId("job")
AT_ONCE, WHEN_ASKED = Work(), Work(ends_at_once=False)
Scenario = Callable[[Stage], Awaitable[None]]
RealScenario = Callable[[RealStage], Awaitable[None]]


def start(attempt: int = 1, workers: int = 2) -> StartWorkers:
    slots = tuple(Slot(NodeId("node"), (index,)) for index in range(workers))
    return StartWorkers(JOB, attempt, 0, slots)


def stop(attempt: int = 1, workers: int = 2) -> StopWorkers:
    return StopWorkers(JOB, attempt, tuple(range(workers)), grace_s=30.0)


async def all_started(stage: Stage, attempt: int = 1, workers: int = 2) -> None:
    """Engines may report workers one by one or together, but nothing in between."""
    seen: frozenset[int] = frozenset()
    while seen != frozenset(range(workers)):
        fact = await stage.next_fact()
        if isinstance(fact, WorkersExited):
            continue
        assert isinstance(fact, WorkersStarted)
        assert (fact.job_id, fact.attempt) == (JOB, attempt)
        seen |= fact.workers


async def all_ended(stage: Stage, attempt: int = 1, workers: int = 2) -> set[int]:
    """The exit codes; starts that are reported meanwhile are fine."""
    codes: dict[int, int] = {}
    while len(codes) < workers:
        fact = await stage.next_fact()
        if isinstance(fact, WorkersExited) and fact.attempt == attempt:
            codes |= fact.codes
    return set(codes.values())


async def finishes(stage: Stage) -> None:
    await stage.order(start(), AT_ONCE)
    assert await all_ended(stage) == {0}


async def starts_and_stops(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(stop(), WHEN_ASKED)
    assert await all_ended(stage) == {143}


async def answers_a_repeated_start(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(stop(), WHEN_ASKED)
    assert await all_ended(stage) == {143}


async def answers_a_start_after_the_end_with_the_end(stage: Stage) -> None:
    await stage.order(start(), AT_ONCE)
    assert await all_ended(stage) == {0}
    await stage.order(start(), AT_ONCE)
    assert await all_ended(stage) == {0}


async def answers_a_repeated_stop(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(stop(), WHEN_ASKED)
    await all_ended(stage)
    await stage.order(stop(), WHEN_ASKED)
    assert await all_ended(stage) == {143}


async def never_starts_what_was_stopped_before(stage: Stage) -> None:
    await stage.order(stop(), WHEN_ASKED)
    assert await all_ended(stage) == {143}
    await stage.order(start(), WHEN_ASKED)
    assert await all_ended(stage) == {143}


async def starts_the_next_attempt_after_a_stop(stage: Stage) -> None:
    await stage.order(start(attempt=1), WHEN_ASKED)
    await all_started(stage, attempt=1)
    await stage.order(stop(attempt=1), WHEN_ASKED)
    await all_ended(stage, attempt=1)
    await stage.order(start(attempt=2), AT_ONCE)
    assert await all_ended(stage, attempt=2) == {0}


async def says_again_what_became_of_workers(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(ReportWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    await all_started(stage)
    await stage.order(stop(), WHEN_ASKED)
    await all_ended(stage)
    await stage.order(ReportWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    assert await all_ended(stage) == {143}


async def has_lost_what_it_never_knew(stage: Stage) -> None:
    await stage.order(ReportWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    lost: frozenset[int] = frozenset()
    while lost != {0, 1}:
        fact = await stage.next_fact()
        assert isinstance(fact, WorkersLost)
        lost |= fact.workers


def change(generation: int, *workers: int) -> ChangeMembership:
    slots = tuple(Slot(NodeId("node"), (worker,)) for worker in workers)
    return ChangeMembership(JOB, 1, generation, slots, workers)


async def exit_of(stage: Stage, worker: int) -> int:
    while True:
        fact = await stage.next_fact()
        if isinstance(fact, WorkersExited) and worker in fact.codes:
            assert fact.codes.keys() == {worker}
            return fact.codes[worker]


async def last_exit_of(stage: Stage, worker: int) -> int:
    """Those who ended before are told of again meanwhile."""
    codes: dict[int, int] = {}
    while worker not in codes:
        fact = await stage.next_fact()
        codes |= fact.codes if isinstance(fact, WorkersExited) else {}
    return codes[worker]


async def kills_one_and_leaves_the_others(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(KillWorkers(JOB, 1, (1,)), WHEN_ASKED)
    assert await exit_of(stage, 1) == 137
    await stage.order(KillWorkers(JOB, 1, (1,)), WHEN_ASKED)
    assert await exit_of(stage, 1) == 137
    await stage.order(stop(workers=1), WHEN_ASKED)
    assert await last_exit_of(stage, 0) == 143


async def never_starts_what_was_killed_before(stage: Stage) -> None:
    await stage.order(KillWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    assert await all_ended(stage) == {137}
    await stage.order(start(), WHEN_ASKED)
    assert await all_ended(stage) == {137}


async def goes_on_with_others_after_a_death(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(KillWorkers(JOB, 1, (0,)), WHEN_ASKED)
    assert await exit_of(stage, 0) == 137
    await stage.order(change(1, 1), WHEN_ASKED)
    await stage.order(change(2, 1, 2), WHEN_ASKED)
    await stage.order(KillWorkers(JOB, 1, (2,)), WHEN_ASKED)
    assert await exit_of(stage, 2) == 137
    await stage.order(StopWorkers(JOB, 1, (1,), 30.0), WHEN_ASKED)
    assert await last_exit_of(stage, 1) == 143


async def lets_nobody_join_what_is_over(stage: Stage) -> None:
    await stage.order(start(), AT_ONCE)
    assert await all_ended(stage) == {0}
    await stage.order(change(1, 0, 1, 2), AT_ONCE)
    assert await all_ended(stage, workers=3) == {0}


async def finds_what_runs_when_it_is_made_anew(stage: Stage) -> None:
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    assert await stage.anew() == {WorkerId(JOB, 1, 0), WorkerId(JOB, 1, 1)}
    found: frozenset[int] = frozenset()
    while found != {0, 1}:
        fact = await stage.next_fact()
        assert isinstance(fact, WorkersFound)
        found |= fact.workers
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    await stage.order(stop(), WHEN_ASKED)
    assert await all_ended(stage) == {143}
    assert await stage.anew() == set()


SCENARIOS: list[Scenario] = [
    finishes,
    starts_and_stops,
    answers_a_repeated_start,
    answers_a_start_after_the_end_with_the_end,
    answers_a_repeated_stop,
    never_starts_what_was_stopped_before,
    starts_the_next_attempt_after_a_stop,
    says_again_what_became_of_workers,
    has_lost_what_it_never_knew,
    kills_one_and_leaves_the_others,
    never_starts_what_was_killed_before,
    goes_on_with_others_after_a_death,
    lets_nobody_join_what_is_over,
    finds_what_runs_when_it_is_made_anew,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine(stage: AbstractAsyncContextManager[Stage], scenario: Scenario) -> None:
    async def play() -> None:
        async with stage as ready:
            await scenario(ready)

    asyncio.run(play())


async def output(stage: RealStage, worker: int, *, follow: bool = False) -> bytes:
    chunks = stage.engine.logs(WorkerId(JOB, 1, worker), LogQuery(follow=follow))
    return b"".join([chunk.output async for chunk in chunks])


async def keeps_what_workers_wrote(stage: RealStage) -> None:
    await stage.order(start(), Work(writes="one\ntwo"))
    assert await all_ended(stage) == {0}
    for worker in (0, 1):
        assert await output(stage, worker, follow=True) == b"one\ntwo"
    await stage.anew()
    assert await output(stage, 0) == b"one\ntwo"
    with pytest.raises(UserError):
        await output(stage, 2)


async def tells_what_is_written_until_the_end(stage: RealStage) -> None:
    await stage.order(start(workers=1), Work(ends_at_once=False, writes="begun\n"))
    await all_started(stage, workers=1)
    reading = asyncio.create_task(output(stage, 0, follow=True))
    await stage.order(stop(workers=1), WHEN_ASKED)
    assert await all_ended(stage, workers=1) == {143}
    assert await reading == b"begun\n"


async def has_the_same_gpus_whatever_runs_on_them(stage: RealStage) -> None:
    """What its own workers hold is for others to count."""
    before = gpus(stage)
    [indices] = before.values()
    assert len(indices) == len(set(indices)) == 4
    await stage.order(start(), WHEN_ASKED)
    await all_started(stage)
    assert gpus(stage) == before
    await stage.order(stop(), WHEN_ASKED)
    await all_ended(stage)
    assert gpus(stage) == before


def gpus(stage: RealStage) -> dict[NodeId, list[int]]:
    """By node. Each is of some type, and has memory."""
    nodes = [node for node in stage.engine.inventory() if node.gpus]
    assert all(gpu.type and gpu.memory_bytes > 0 for node in nodes for gpu in node.gpus)
    return {node.id: [gpu.index for gpu in node.gpus] for node in nodes}


async def says_what_it_would_do_without_doing_it(stage: RealStage) -> None:
    order, program = start(), stage.program(AT_ONCE)
    rendered = stage.engine.render(order, program)
    assert rendered == stage.engine.render(order, program)
    assert isinstance(rendered, dict)
    assert len(rendered) == 2
    assert rendered != stage.engine.render(start(attempt=2), program)
    await has_lost_what_it_never_knew(stage)


REAL_SCENARIOS: list[RealScenario] = [
    keeps_what_workers_wrote,
    tells_what_is_written_until_the_end,
    has_the_same_gpus_whatever_runs_on_them,
    says_what_it_would_do_without_doing_it,
]


@pytest.mark.parametrize("scenario", REAL_SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("engine", REAL_ENGINES)
def test_engine_that_is_real(
    stage: AbstractAsyncContextManager[RealStage], scenario: RealScenario
) -> None:
    async def play() -> None:
        async with stage as ready:
            await scenario(ready)

    asyncio.run(play())
