"""Killing one worker does not affect the others of the attempt."""

import os
import signal

from rota.core.model.allocation import Slot
from rota.core.model.commands import ChangeMembership, KillWorkers
from rota.core.model.job import JobId
from tests.integration.engine.box import NODE, Box, on_a_box, sh

JOB = JobId("job")
STUBBORN = sh("trap '' TERM; (trap '' TERM; sleep 1000) & echo ready; while :; do sleep 1; done")


def kill(*workers: int) -> KillWorkers:
    return KillWorkers(JOB, 1, workers)


async def two(box: Box) -> None:
    await box.start("job", STUBBORN, workers=2)
    for worker in range(2):
        await box.says("job", "ready", worker=worker)


@on_a_box
async def test_kill_ends_a_stopped_tree_that_ignores_signals(box: Box) -> None:
    await two(box)
    for pid in box.processes("job", worker=1):
        os.kill(pid, signal.SIGSTOP)
    await box.engine.apply(kill(1))
    assert await box.end_of("job", worker=1) == 137
    assert not box.processes("job", worker=1)
    assert box.processes("job")


@on_a_box
async def test_repeated_kill_is_reported_again_after_a_restart(box: Box) -> None:
    await two(box)
    await box.restart()
    await box.engine.apply(kill(1))
    assert await box.end_of("job", worker=1) == 137
    box.facts.clear()
    await box.restart()
    await box.engine.apply(kill(1))
    assert await box.end_of("job", worker=1) == 137
    assert box.processes("job")


@on_a_box
async def test_kill_request_missed_by_the_supervisor_is_executed_after_a_restart(
    box: Box,
) -> None:
    await two(box)
    box.folders.request_kill(box.folders.live()[1])
    await box.restart()
    await box.adopt()
    assert await box.end_of("job", worker=1) == 137


@on_a_box
async def test_new_workers_can_join_after_a_kill(box: Box) -> None:
    await two(box)
    await box.engine.apply(kill(0))
    assert await box.end_of("job") == 137
    slots = (Slot(NODE, (1,)), Slot(NODE, (0,)))
    await box.engine.apply(ChangeMembership(JOB, 1, 2, slots, (1, 2)), STUBBORN)
    await box.says("job", "ready", worker=2)
    await box.start_of("job", worker=2)
