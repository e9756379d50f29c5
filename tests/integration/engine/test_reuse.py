"""A supervisor runs one worker after the other; nothing of a worker reaches the next one."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rota.engines.interface import Program
from rota.engines.local import idle_supervisors
from tests.integration.engine.box import Box, on_a_box, sh, wait_for_end


async def _idle_supervisor(box: Box, job_id: str = "first") -> int:
    assert (await box.run(job_id, sh("exit 0"))).code == 0
    return box.supervisor_pid(job_id)


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@on_a_box
async def test_the_next_worker_has_the_same_supervisor(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    assert (await box.run("second", sh("exit 3"))).code == 3
    assert (await box.run("third", sh("kill -9 $$"))).code == 137
    assert {box.supervisor_pid("second"), box.supervisor_pid("third")} == {keeper}
    assert [type(fact).__name__ for fact in box.facts] == ["WorkersStarted", "WorkersExited"] * 3


@on_a_box
async def test_a_supervisor_keeps_no_files_of_its_workers(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    n_before = _open_files(keeper)
    for number in range(5):
        await box.run(f"job{number}", sh("echo output; sleep 0.02"))
    await box.run("missing", Program(("/no/such/program",)))
    assert box.supervisor_pid("missing") == keeper
    assert _open_files(keeper) == n_before


@on_a_box
async def test_workers_at_the_same_time_have_different_supervisors(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    for name in ("one", "two"):
        await box.run_until_output(name, "ready", sh("echo ready; sleep 1000"))
    pids = {box.supervisor_pid("one"), box.supervisor_pid("two")}
    assert keeper in pids
    assert len(pids) == 2


@on_a_box
async def test_a_late_stop_of_a_worker_does_not_stop_the_next_one(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    os.kill(keeper, signal.SIGTERM)
    ending = await box.run("second", sh("sleep 0.1; exit 4"))
    assert (box.supervisor_pid("second"), ending.code, ending.is_stopped) == (keeper, 4, False)


@on_a_box
async def test_a_worker_is_stopped_under_a_used_supervisor(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    await box.run_until_output("second", "ready", sh("echo ready; sleep 1000"))
    await box.stop("second")
    assert await box.end_of("second") == 143
    assert box.supervisor_pid("second") == keeper


@on_a_box
async def test_a_dead_idle_supervisor_is_replaced(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    os.kill(keeper, signal.SIGKILL)
    # The daemon has not seen the death yet.
    assert (await box.run("second", sh("exit 2"))).code == 2
    assert box.supervisor_pid("second") != keeper


@on_a_box
async def test_idle_supervisors_end_with_the_fork_server(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    process = box.engine._workers._fork_server._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert (await box.run("second", sh("exit 2"))).code == 2
    assert box.supervisor_pid("second") != keeper
    await asyncio.to_thread(wait_for_end, keeper)


@on_a_box
async def test_idle_supervisors_end_with_the_daemon(box: Box) -> None:
    keeper = await _idle_supervisor(box)
    await box.engine.close()
    await asyncio.to_thread(wait_for_end, keeper)
    await box.restart()


@on_a_box
async def test_idle_supervisors_do_not_wait_for_long(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_supervisors, "IDLE_S", 0.01)
    await asyncio.to_thread(wait_for_end, await _idle_supervisor(box))
    assert (await box.run("second", sh("exit 2"))).code == 2


@on_a_box
async def test_a_supervisor_is_replaced_after_many_workers(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_supervisors, "WORKERS_MAX", 2)
    keeper = await _idle_supervisor(box)
    await box.run("second", sh("exit 0"))
    await box.run("third", sh("exit 0"))
    assert box.supervisor_pid("second") == keeper
    assert box.supervisor_pid("third") != keeper
