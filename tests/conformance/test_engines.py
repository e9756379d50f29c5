"""The scenarios. Each sends commands to the engine and checks the events that must follow."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.commands import (
    ChangeMembership,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import WorkersExited, WorkersFound, WorkersLost, WorkersStarted
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.engines.interface import LogQuery, WorkerId
from rota.errors import UserError
from tests.conformance.harnesses import (
    ENGINES,
    REAL_ENGINES,
    EngineHarness,
    RealEngineHarness,
    WorkerBehavior,
)
from tests.support.timeouts import PATIENCE_S

JOB = JobId("job")
AT_ONCE, WHEN_ASKED = WorkerBehavior(), WorkerBehavior(ends_at_once=False)
Scenario = Callable[[EngineHarness], Awaitable[None]]
RealScenario = Callable[[RealEngineHarness], Awaitable[None]]


def start(attempt: int = 1, workers: int = 2) -> StartWorkers:
    slots = tuple(Slot(NodeId("node"), (index,)) for index in range(workers))
    return StartWorkers(JOB, attempt, 0, slots)


def stop(attempt: int = 1, workers: int = 2) -> StopWorkers:
    return StopWorkers(JOB, attempt, tuple(range(workers)), grace_s=30.0)


async def all_started(harness: EngineHarness, attempt: int = 1, workers: int = 2) -> None:
    """Engines may report workers one by one or together, but no other event in between."""
    seen: frozenset[int] = frozenset()
    while seen != frozenset(range(workers)):
        fact = await harness.next_event()
        if isinstance(fact, WorkersExited):
            continue
        assert isinstance(fact, WorkersStarted)
        assert (fact.job_id, fact.attempt) == (JOB, attempt)
        seen |= fact.workers


async def all_ended(harness: EngineHarness, attempt: int = 1, workers: int = 2) -> set[int]:
    """Wait for the exit codes; events about starts are ignored."""
    codes: dict[int, int] = {}
    while len(codes) < workers:
        fact = await harness.next_event()
        if isinstance(fact, WorkersExited) and fact.attempt == attempt:
            codes |= fact.codes
    return set(codes.values())


async def finishes(harness: EngineHarness) -> None:
    await harness.order(start(), AT_ONCE)
    assert await all_ended(harness) == {0}


async def starts_and_stops(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(stop(), WHEN_ASKED)
    assert await all_ended(harness) == {143}


async def reports_a_repeated_start_again(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(stop(), WHEN_ASKED)
    assert await all_ended(harness) == {143}


async def reports_the_end_for_a_start_after_the_end(harness: EngineHarness) -> None:
    await harness.order(start(), AT_ONCE)
    assert await all_ended(harness) == {0}
    await harness.order(start(), AT_ONCE)
    assert await all_ended(harness) == {0}


async def reports_a_repeated_stop_again(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(stop(), WHEN_ASKED)
    await all_ended(harness)
    await harness.order(stop(), WHEN_ASKED)
    assert await all_ended(harness) == {143}


async def never_starts_a_stopped_attempt(harness: EngineHarness) -> None:
    await harness.order(stop(), WHEN_ASKED)
    assert await all_ended(harness) == {143}
    await harness.order(start(), WHEN_ASKED)
    assert await all_ended(harness) == {143}


async def starts_the_next_attempt_after_a_stop(harness: EngineHarness) -> None:
    await harness.order(start(attempt=1), WHEN_ASKED)
    await all_started(harness, attempt=1)
    await harness.order(stop(attempt=1), WHEN_ASKED)
    await all_ended(harness, attempt=1)
    await harness.order(start(attempt=2), AT_ONCE)
    assert await all_ended(harness, attempt=2) == {0}


async def reports_the_state_of_workers_again(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(ReportWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    await all_started(harness)
    await harness.order(stop(), WHEN_ASKED)
    await all_ended(harness)
    await harness.order(ReportWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    assert await all_ended(harness) == {143}


async def reports_unknown_workers_as_lost(harness: EngineHarness) -> None:
    await harness.order(ReportWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    lost: frozenset[int] = frozenset()
    while lost != {0, 1}:
        fact = await harness.next_event()
        assert isinstance(fact, WorkersLost)
        lost |= fact.workers


def change(generation: int, *workers: int) -> ChangeMembership:
    slots = tuple(Slot(NodeId("node"), (worker,)) for worker in workers)
    return ChangeMembership(JOB, 1, generation, slots, workers)


async def exit_of(harness: EngineHarness, worker: int) -> int:
    while True:
        fact = await harness.next_event()
        if isinstance(fact, WorkersExited) and worker in fact.codes:
            assert fact.codes.keys() == {worker}
            return fact.codes[worker]


async def last_exit_of(harness: EngineHarness, worker: int) -> int:
    """Wait for the exit of the last worker; earlier exits may be reported again."""
    codes: dict[int, int] = {}
    while worker not in codes:
        fact = await harness.next_event()
        codes |= fact.codes if isinstance(fact, WorkersExited) else {}
    return codes[worker]


async def kills_one_worker_only(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(KillWorkers(JOB, 1, (1,)), WHEN_ASKED)
    assert await exit_of(harness, 1) == 137
    await harness.order(KillWorkers(JOB, 1, (1,)), WHEN_ASKED)
    assert await exit_of(harness, 1) == 137
    await harness.order(stop(workers=1), WHEN_ASKED)
    assert await last_exit_of(harness, 0) == 143


async def never_starts_a_killed_worker(harness: EngineHarness) -> None:
    await harness.order(KillWorkers(JOB, 1, (0, 1)), WHEN_ASKED)
    assert await all_ended(harness) == {137}
    await harness.order(start(), WHEN_ASKED)
    assert await all_ended(harness) == {137}


async def continues_with_new_workers_after_a_loss(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(KillWorkers(JOB, 1, (0,)), WHEN_ASKED)
    assert await exit_of(harness, 0) == 137
    await harness.order(change(1, 1), WHEN_ASKED)
    await harness.order(change(2, 1, 2), WHEN_ASKED)
    await harness.order(KillWorkers(JOB, 1, (2,)), WHEN_ASKED)
    assert await exit_of(harness, 2) == 137
    await harness.order(StopWorkers(JOB, 1, (1,), 30.0), WHEN_ASKED)
    assert await last_exit_of(harness, 1) == 143


async def refuses_new_workers_of_an_ended_attempt(harness: EngineHarness) -> None:
    await harness.order(start(), AT_ONCE)
    assert await all_ended(harness) == {0}
    await harness.order(change(1, 0, 1, 2), AT_ONCE)
    assert await all_ended(harness, workers=3) == {0}


async def finds_running_workers_after_a_restart(harness: EngineHarness) -> None:
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    assert await harness.restart() == {WorkerId(JOB, 1, 0), WorkerId(JOB, 1, 1)}
    found: frozenset[int] = frozenset()
    while found != {0, 1}:
        fact = await harness.next_event()
        assert isinstance(fact, WorkersFound)
        found |= fact.workers
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    await harness.order(stop(), WHEN_ASKED)
    assert await all_ended(harness) == {143}
    assert await harness.restart() == set()


SCENARIOS: list[Scenario] = [
    finishes,
    starts_and_stops,
    reports_a_repeated_start_again,
    reports_the_end_for_a_start_after_the_end,
    reports_a_repeated_stop_again,
    never_starts_a_stopped_attempt,
    starts_the_next_attempt_after_a_stop,
    reports_the_state_of_workers_again,
    reports_unknown_workers_as_lost,
    kills_one_worker_only,
    never_starts_a_killed_worker,
    continues_with_new_workers_after_a_loss,
    refuses_new_workers_of_an_ended_attempt,
    finds_running_workers_after_a_restart,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine(harness: AbstractAsyncContextManager[EngineHarness], scenario: Scenario) -> None:
    async def play() -> None:
        async with harness as ready:
            await scenario(ready)

    asyncio.run(play())


async def output(harness: RealEngineHarness, worker: int, *, follow: bool = False) -> bytes:
    chunks = harness.engine.logs(WorkerId(JOB, 1, worker), LogQuery(follow=follow))
    return b"".join([chunk.output async for chunk in chunks])


async def stores_output(harness: RealEngineHarness) -> None:
    await harness.order(start(), WorkerBehavior(writes="one\ntwo"))
    assert await all_ended(harness) == {0}
    for worker in (0, 1):
        assert await output(harness, worker, follow=True) == b"one\ntwo"
    await harness.restart()
    assert await output(harness, 0) == b"one\ntwo"
    with pytest.raises(UserError):
        await output(harness, 2)


async def follows_output_until_the_end(harness: RealEngineHarness) -> None:
    await harness.order(start(workers=1), WorkerBehavior(ends_at_once=False, writes="begun\n"))
    await all_started(harness, workers=1)
    reading = asyncio.create_task(output(harness, 0, follow=True))
    async with asyncio.timeout(PATIENCE_S):
        while not await output(harness, 0):  # noqa: ASYNC110 - logs have no event
            await asyncio.sleep(0.05)
    await harness.order(stop(workers=1), WHEN_ASKED)
    assert await all_ended(harness, workers=1) == {143}
    assert await reading == b"begun\n"


async def reports_the_same_gpus_while_workers_run(harness: RealEngineHarness) -> None:
    """The engine does not subtract GPUs that its own workers use."""
    before = gpus(harness)
    [indices] = before.values()
    assert len(indices) == len(set(indices)) == 4
    await harness.order(start(), WHEN_ASKED)
    await all_started(harness)
    assert gpus(harness) == before
    await harness.order(stop(), WHEN_ASKED)
    await all_ended(harness)
    assert gpus(harness) == before


def gpus(harness: RealEngineHarness) -> dict[NodeId, list[int]]:
    """The GPUs of each node, after a check that each has a type and memory."""
    nodes = [node for node in harness.engine.inventory() if node.gpus]
    assert all(gpu.type and gpu.memory_bytes > 0 for node in nodes for gpu in node.gpus)
    return {node.id: [gpu.index for gpu in node.gpus] for node in nodes}


async def renders_a_command_without_side_effects(harness: RealEngineHarness) -> None:
    order, program = start(), harness.program(AT_ONCE)
    rendered = harness.engine.render(order, program)
    assert rendered == harness.engine.render(order, program)
    assert isinstance(rendered, dict)
    assert len(rendered) == 2
    assert rendered != harness.engine.render(start(attempt=2), program)
    await reports_unknown_workers_as_lost(harness)


REAL_SCENARIOS: list[RealScenario] = [
    stores_output,
    follows_output_until_the_end,
    reports_the_same_gpus_while_workers_run,
    renders_a_command_without_side_effects,
]


@pytest.mark.parametrize("scenario", REAL_SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("engine", REAL_ENGINES)
def test_real_engine(
    harness: AbstractAsyncContextManager[RealEngineHarness], scenario: RealScenario
) -> None:
    async def play() -> None:
        async with harness as ready:
            await scenario(ready)

    asyncio.run(play())
