"""A stop ends everything that a worker started, and its end is reported only then."""

import os
import signal
import time

from rota.engines.base import Limits, Program
from tests.integration.engine.box import Box, on_a_box, seconds_of, sh, wait_for_end

POLITE = "trap 'echo saving; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1000; done"
TWO_SESSIONS = """
setsid sh -c 'setsid sleep 1000 & echo $!; exec sleep 1000' &
sh -c 'trap "" TERM HUP; echo ready; while :; do sleep 1000; done'
"""


@on_a_box
async def test_a_stop_is_polite_first(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(POLITE))
    await box.stop("job")
    assert await box.end_of("job") == 9
    assert b"saving\n" in await box.output("job")
    ending = box.ending("job")
    assert (ending.is_stopped, ending.is_killed, ending.reason) == (True, False, "")


@on_a_box
async def test_who_ignores_it_is_killed_after_the_grace_period(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(STUBBORN))
    start = time.monotonic()
    await box.stop("job", grace_s=0.5)
    assert await box.end_of("job") == 137
    assert seconds_of(start) >= 0.5
    assert not box.processes("job")
    assert await box.words_of("job") == "did not end within its grace period and was killed"


@on_a_box
async def test_all_have_the_grace_period_not_only_the_first_process(box: Box) -> None:
    """The shell around a program ends at once; the program saves its work."""
    saver = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    program = Program(("/bin/sh", "-c", 'sh -c "$0" & wait', saver), grace_s=0.0)
    await box.run_until_it_says("job", "ready", program)
    await box.stop("job", grace_s=60.0)
    assert await box.end_of("job") == 143
    assert b"saved\n" in await box.output("job")


@on_a_box
async def test_a_second_stop_may_shorten_the_grace_period(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(STUBBORN))
    await box.stop("job", grace_s=10_000.0)
    await box.stop("job", grace_s=0.0)
    assert await box.end_of("job") == 137


@on_a_box
async def test_sessions_of_their_own_end_too(box: Box) -> None:
    """As torchrun starts its workers."""
    await box.run_until_it_says("job", "ready", sh(TWO_SESSIONS))
    assert len(box.processes("job")) >= 4
    await box.stop("job", grace_s=0.2)
    await box.end_of("job")
    assert not box.processes("job")


@on_a_box
async def test_what_a_worker_leaves_behind_ends_with_it(box: Box) -> None:
    """A job that daemonises: the parent is gone at once, the child is in a session of its own."""
    ending = await box.run("job", sh("setsid sh -c 'setsid sleep 1000 & sleep 1000' & exit 4"))
    assert ending.code == 4
    assert ending.n_left_behind >= 1
    n = ending.n_left_behind
    assert f"left {n} process{'es' if n > 1 else ''} behind, which w" in ending.reason
    assert not box.processes("job")


@on_a_box
async def test_what_is_left_behind_and_stubborn_is_killed(box: Box) -> None:
    script = f'setsid sh -c "{STUBBORN}" & while ! [ -s $0 ]; do sleep 0.01; done; exit 0'
    log = box.place("job") / "worker-0.log"
    ending = await box.run("job", Program(("/bin/sh", "-c", script, str(log)), grace_s=0.1))
    assert (ending.code, ending.is_killed) == (0, True)
    assert ending.reason.startswith("left ")
    assert ending.reason.endswith(" killed")
    assert not box.processes("job")


@on_a_box
async def test_a_stopped_process_hears_the_stop(box: Box) -> None:
    stopped = "trap 'exit 5' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done"
    await box.run_until_it_says("job", "ready", sh(stopped))
    await box.stop("job", grace_s=30.0)
    assert await box.end_of("job") == 5


@on_a_box
async def test_a_fork_bomb_within_its_limit_is_ended(box: Box) -> None:
    # The first shell forks once, before there is anything to run into: a fork that fails ends it.
    bomb = "bomb() { bomb | bomb & }; trap '' TERM; (bomb) 2>/dev/null & echo ready; exec sleep 99"
    await box.run_until_it_says("job", "ready", sh(bomb, limits=Limits(pids=60)))
    assert len(box.processes("job")) <= 60
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


@on_a_box
async def test_a_process_that_keeps_moving_is_ended(box: Box) -> None:
    """Each lives only long enough to start the next, always a step ahead of whoever walks."""
    hop = "trap '' TERM; echo ready; hop() { (hop) & exit 0; }; (hop) & exec sleep 99"
    await box.run_until_it_says("job", "ready", sh(hop))
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


@on_a_box
async def test_a_stop_before_the_start_prevents_it(box: Box) -> None:
    await box.stop("job", workers=2)
    assert [await box.end_of("job", worker=worker) for worker in range(2)] == [143, 143]
    box.facts.clear()
    await box.start("job", sh("touch $0"), workers=2)
    assert [await box.end_of("job", worker=worker) for worker in range(2)] == [143, 143]
    assert not (box.place("job") / "keeper.json").exists()


@on_a_box
async def test_a_stop_right_behind_the_start_wins(box: Box) -> None:
    await box.start("job", sh("sleep 1000"))
    await box.stop("job", grace_s=0.0)
    assert await box.end_of("job") in (143, 137)
    assert not box.processes("job")


@on_a_box
async def test_a_repeated_stop_is_answered_again(box: Box) -> None:
    await box.start("job", sh("sleep 1000"))
    await box.start_of("job")
    await box.stop("job")
    assert await box.end_of("job") == 143
    box.facts.clear()
    await box.stop("job")
    assert await box.end_of("job") == 143


@on_a_box
async def test_a_machine_that_shuts_down_stops_its_workers(box: Box) -> None:
    """It sends SIGTERM to everybody, keepers included."""
    await box.run_until_it_says("job", "ready", sh(POLITE))
    os.kill(box.keeper_pid("job"), signal.SIGTERM)
    assert await box.end_of("job") == 9


@on_a_box
async def test_a_closed_terminal_stops_nobody(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(POLITE))
    keeper = box.keeper_pid("job")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(keeper, number)
    await box.stop("job")
    assert await box.end_of("job") == 9
    wait_for_end(keeper)
