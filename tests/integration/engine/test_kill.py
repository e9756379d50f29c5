"""One worker is killed, and the others of its attempt do not notice."""

import os
import signal

from rota.core.commands import ChangeMembership, KillWorkers
from rota.core.model import JobId, Slot
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
async def test_a_tree_that_hears_no_signal_and_stands_still_ends_at_once(box: Box) -> None:
    await two(box)
    for pid in box.processes("job", worker=1):
        os.kill(pid, signal.SIGSTOP)
    await box.engine.apply(kill(1))
    assert await box.end_of("job", worker=1) == 137
    assert not box.processes("job", worker=1)
    assert box.processes("job")


@on_a_box
async def test_a_kill_is_answered_again_also_by_the_next_daemon(box: Box) -> None:
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
async def test_a_wish_that_its_keeper_missed_is_seen_by_the_next_daemon(box: Box) -> None:
    await two(box)
    box.folders.wish_kill(box.folders.live()[1])
    await box.restart()
    await box.adopt()
    assert await box.end_of("job", worker=1) == 137


@on_a_box
async def test_an_attempt_that_lost_a_worker_takes_newcomers(box: Box) -> None:
    await two(box)
    await box.engine.apply(kill(0))
    assert await box.end_of("job") == 137
    slots = (Slot(NODE, (1,)), Slot(NODE, (0,)))
    await box.engine.apply(ChangeMembership(JOB, 1, 2, slots, (1, 2)), STUBBORN)
    await box.says("job", "ready", worker=2)
    await box.start_of("job", worker=2)
