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
from rota.core.events import WorkersExited, WorkersLost, WorkersStarted
from rota.core.model import JobId, NodeId, Slot
from tests.conformance.stages import ENGINES, Stage, Work

JOB = JobId("job")
AT_ONCE, WHEN_ASKED = Work(), Work(ends_at_once=False)
Scenario = Callable[[Stage], Awaitable[None]]


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
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine(stage: AbstractAsyncContextManager[Stage], scenario: Scenario) -> None:
    async def play() -> None:
        async with stage as ready:
            await scenario(ready)

    asyncio.run(play())
