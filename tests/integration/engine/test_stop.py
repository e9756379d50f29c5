"""A stop ends all descendants of a worker before the end is reported."""

import asyncio
import os
import signal
import time

from rota.engines.interface import Program, WorkerLimits
from tests.integration.engine.box import Box, on_a_box, seconds_of, sh, wait_for_end

POLITE = "trap 'echo saving; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1000; done"
TWO_SESSIONS = """
setsid sh -c 'setsid sleep 1000 & echo $!; exec sleep 1000' &
sh -c 'trap "" TERM HUP; echo ready; while :; do sleep 1000; done'
"""


@on_a_box
async def test_stop_sends_sigterm_first(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(POLITE))
    await box.stop("job")
    assert await box.end_of("job") == 9
    assert b"saving\n" in await box.output("job")
    ending = box.ending("job")
    assert (ending.is_stopped, ending.is_killed, ending.reason) == (True, False, "")


@on_a_box
async def test_sigkill_after_the_grace_period(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(STUBBORN))
    start = time.monotonic()
    await box.stop("job", grace_s=0.5)
    assert await box.end_of("job") == 137
    assert seconds_of(start) >= 0.5
    assert not box.processes("job")
    assert await box.reason_of("job") == "did not end within its grace period and was killed"


@on_a_box
async def test_all_processes_have_the_grace_period(box: Box) -> None:
    """The shell ends at once, but its program still saves its work."""
    saver = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    program = Program(("/bin/sh", "-c", 'sh -c "$0" & wait', saver), grace_s=0.0)
    await box.run_until_output("job", "ready", program)
    await box.stop("job", grace_s=60.0)
    assert await box.end_of("job") == 143
    assert b"saved\n" in await box.output("job")


@on_a_box
async def test_second_stop_can_shorten_the_grace_period(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(STUBBORN))
    await box.stop("job", grace_s=10_000.0)
    await box.stop("job", grace_s=0.0)
    assert await box.end_of("job") == 137


@on_a_box
async def test_processes_in_other_sessions_end_too(box: Box) -> None:
    """torchrun starts its workers in sessions of their own."""
    await box.run_until_output("job", "ready", sh(TWO_SESSIONS))
    assert len(box.processes("job")) >= 4
    await box.stop("job", grace_s=0.2)
    await box.end_of("job")
    assert not box.processes("job")


@on_a_box
async def test_processes_left_behind_are_ended(box: Box) -> None:
    """A job that daemonises: the parent ends at once, the child is in another session."""
    ending = await box.run("job", sh("setsid sh -c 'setsid sleep 1000 & sleep 1000' & exit 4"))
    assert ending.code == 4
    assert ending.n_left_behind >= 1
    n = ending.n_left_behind
    assert f"left {n} process{'es' if n > 1 else ''} behind, which w" in ending.reason
    assert not box.processes("job")


@on_a_box
async def test_processes_left_behind_that_ignore_sigterm_are_killed(box: Box) -> None:
    script = f'setsid sh -c "{STUBBORN}" & while ! [ -s $0 ]; do sleep 0.01; done; exit 0'
    log = box.place("job") / "worker-0.log"
    ending = await box.run("job", Program(("/bin/sh", "-c", script, str(log)), grace_s=0.1))
    assert (ending.code, ending.is_killed) == (0, True)
    assert ending.reason.startswith("left ")
    assert ending.reason.endswith(" killed")
    assert not box.processes("job")


@on_a_box
async def test_stopped_process_gets_sigterm(box: Box) -> None:
    stopped = "trap 'exit 5' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done"
    await box.run_until_output("job", "ready", sh(stopped))
    await box.stop("job", grace_s=30.0)
    assert await box.end_of("job") == 5


@on_a_box
async def test_fork_bomb_within_its_limit_is_ended(box: Box) -> None:
    # The first shell forks once before the limit is reached, because a failing fork ends it.
    bomb = "bomb() { bomb | bomb & }; trap '' TERM; (bomb) 2>/dev/null & echo ready; exec sleep 99"
    await box.run_until_output("job", "ready", sh(bomb, limits=WorkerLimits(pids=60)))
    assert len(box.processes("job")) <= 60
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


@on_a_box
async def test_chain_of_short_lived_processes_is_ended(box: Box) -> None:
    """Each process only starts the next one, always ahead of the walk of /proc."""
    hop = "trap '' TERM; echo ready; hop() { (hop) & exit 0; }; (hop) & exec sleep 99"
    await box.run_until_output("job", "ready", sh(hop))
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


@on_a_box
async def test_stop_before_the_start_prevents_the_start(box: Box) -> None:
    await box.stop("job", workers=2)
    assert [await box.end_of("job", worker=worker) for worker in range(2)] == [143, 143]
    box.facts.clear()
    await box.start("job", sh("touch $0"), workers=2)
    assert [await box.end_of("job", worker=worker) for worker in range(2)] == [143, 143]
    assert not (box.place("job") / "keeper.json").exists()


@on_a_box
async def test_stop_right_after_the_start_wins(box: Box) -> None:
    await box.start("job", sh("sleep 1000"))
    await box.stop("job", grace_s=0.0)
    assert await box.end_of("job") in (143, 137)
    assert not box.processes("job")


@on_a_box
async def test_repeated_stop_is_reported_again(box: Box) -> None:
    await box.start("job", sh("sleep 1000"))
    await box.start_of("job")
    await box.stop("job")
    assert await box.end_of("job") == 143
    box.facts.clear()
    await box.stop("job")
    assert await box.end_of("job") == 143


@on_a_box
async def test_shutdown_of_the_machine_stops_workers(box: Box) -> None:
    """The shutdown sends SIGTERM to all processes, supervisors included."""
    await box.run_until_output("job", "ready", sh(POLITE))
    os.kill(box.supervisor_pid("job"), signal.SIGTERM)
    assert await box.end_of("job") == 9


@on_a_box
async def test_closed_terminal_stops_no_worker(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(POLITE))
    keeper = box.supervisor_pid("job")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(keeper, number)
    await box.stop("job")
    assert await box.end_of("job") == 9
    await asyncio.to_thread(wait_for_end, keeper)
