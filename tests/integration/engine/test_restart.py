"""Whatever dies (daemon, fork server, supervisor, worker): no worker runs twice or unknown."""

import asyncio
import errno
import json
import os
import random
import signal
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota import log_setup
from rota.core.model.allocation import Slot
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.core.model.events import WorkersFound, WorkersLost, WorkersStarted
from rota.core.model.job import JobId
from rota.engines.local import fork_server_client, workers
from rota.engines.local.supervisor import state_files
from rota.engines.local.supervisor.records import WorkerKey
from tests.integration.engine.box import NODE, Box, on_a_box, sh, wait_for_end
from tests.support.seed_counts import seeds

FOREVER = sh("echo $$; sleep 1000 & echo ready; wait")
"""All its processes exist when it is ready, so that a test can compare them."""


@on_a_box
async def test_repeated_start_starts_nothing(box: Box) -> None:
    for _ in range(3):
        await box.start("job", sh("echo once; sleep 1000"))
    await box.says("job", "once")
    box.facts.clear()
    await box.start("job", sh("echo once; sleep 1000"))
    await box.start_of("job")
    assert await box.output("job") == b"once\n"
    assert len(box.processes("job")) == 2


@on_a_box
async def test_start_after_the_end_reports_the_end(box: Box) -> None:
    await box.run("job", sh("echo once; exit 3"))
    box.facts.clear()
    await box.start("job", sh("echo once; exit 3"))
    assert await box.end_of("job") == 3
    assert await box.output("job") == b"once\n"


@on_a_box
async def test_next_daemon_adopts_running_workers(box: Box) -> None:
    await box.run_until_output("job", "ready", FOREVER)
    before = box.processes("job")
    await box.restart()
    assert await box.adopt() == {"job"}
    await box.until(lambda fact: fact == WorkersFound(JobId("job"), 1, frozenset({0})))
    await box.report("job")
    await box.start_of("job")
    assert box.processes("job") == before
    await box.stop("job")
    assert await box.end_of("job") == 143


@on_a_box
async def test_exit_after_adoption_is_reported(box: Box) -> None:
    script = "trap 'exit 6' USR1; echo $$ ready; while :; do sleep 0.01; done"
    await box.start("job", sh(script))
    pid, _ = (await box.says("job", "ready")).split()
    await box.restart()
    await box.adopt()
    os.kill(int(pid), signal.SIGUSR1)
    assert await box.end_of("job") == 6


@on_a_box
async def test_exit_without_a_daemon_is_reported_later(box: Box) -> None:
    await box.run_until_output("job", "ready", FOREVER)
    keeper = box.supervisor_pid("job")
    await box.engine.close()
    os.kill(keeper, signal.SIGTERM)
    await asyncio.to_thread(wait_for_end, keeper)
    await box.restart()
    assert await box.adopt() == set()
    assert await box.end_of("job") == 143


@on_a_box
async def test_exit_reported_before_a_crash_is_reported_again(box: Box) -> None:
    await box.run("job", sh("exit 5"))
    await box.restart()
    await box.adopt()
    await box.report("job")
    assert await box.end_of("job") == 5


@pytest.mark.parametrize(
    ("record", "code"), [({"code": 5, "field_of_a_newer_version": 1}, 5), ({"exit": 5}, -1)]
)
@on_a_box
async def test_exit_record_of_another_version_is_reported(
    box: Box, record: dict[str, int], code: int
) -> None:
    await box.run("job", sh("exit 5"))
    (box.place("job") / state_files.EXIT).write_text(json.dumps(record))
    await box.restart()
    await box.report("job")
    assert await box.end_of("job") == code


@on_a_box
async def test_unknown_worker_is_lost_and_never_starts(box: Box) -> None:
    await box.report("gone")
    lost = WorkersLost(JobId("gone"), 1, frozenset({0}), "no record of this worker")
    assert box.facts == [lost]
    await box.start("gone", FOREVER)
    assert await box.end_of("gone") == -1
    assert not box.processes("gone")


@on_a_box
async def test_repeated_start_after_a_crash_starts_the_worker(box: Box) -> None:
    """The daemon died between spec and fork: the repeated command starts the worker."""
    fence = WorkerKey("job", 1, 0)
    command = StartWorkers(JobId("job"), 1, 0, (Slot(NODE, (0,)),))
    [spec] = box.engine.render(command, sh("exit 8")).values()
    spec.env["MASTER_PORT"] = "29500"
    box.folders.prepare(fence, spec)
    await box.restart()
    assert await box.adopt() == set()
    assert box.facts == []
    await box.start("job", sh("exit 8"))
    assert await box.end_of("job") == 8


@on_a_box
async def test_dead_supervisor_means_a_dead_tree(box: Box) -> None:
    """Other sessions and an ignored SIGTERM: every process ends before the loss is reported."""
    script = (
        "setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' & trap '' TERM; echo ready; wait"
    )
    await box.run_until_output("job", "ready", sh(script))
    os.kill(box.supervisor_pid("job"), signal.SIGKILL)
    assert await box.end_of("job") == -1
    assert not box.processes("job")
    ending = box.ending("job")
    assert (ending.is_lost, ending.reason) == (True, "supervisor died")
    assert await box.reason_of("job") == "supervisor died"
    assert ending.n_left_behind >= 2


@on_a_box
async def test_supervisor_that_died_with_the_daemon(box: Box) -> None:
    await box.run_until_output("job", "ready", FOREVER)
    keeper = box.supervisor_pid("job")
    await box.engine.close()
    os.kill(keeper, signal.SIGKILL)
    await asyncio.to_thread(wait_for_end, keeper)
    assert box.processes("job")
    await box.restart()
    await box.adopt()
    assert await box.end_of("job") == -1
    assert not box.processes("job")


@on_a_box
async def test_reused_pid_is_not_the_supervisor(box: Box) -> None:
    """The file holds the pid of another live process, which is not touched."""
    await box.run_until_output("job", "ready", FOREVER)
    keeper = box.supervisor_pid("job")
    await box.engine.close()
    os.kill(keeper, signal.SIGKILL)
    await asyncio.to_thread(wait_for_end, keeper)
    record = box.place("job") / "keeper.json"
    record.write_text(record.read_text().replace(str(keeper), str(os.getpid()), 1))
    await box.restart()
    await box.adopt()
    assert await box.end_of("job") == -1


@on_a_box
async def test_dead_fork_server_is_replaced(box: Box) -> None:
    await box.run_until_output("old", "ready", FOREVER)
    _kill_fork_server(box)
    await box.start("new", sh("exit 2"))
    assert await box.end_of("new") == 2
    await box.stop("old")
    assert await box.end_of("old") == 143


@on_a_box
async def test_large_log_of_the_fork_server_is_rotated(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_setup, "LOG_BYTES_MAX", 4)
    (box.root / "nursery.log").write_text("first")
    await box.restart()
    assert (box.root / "nursery.log.1").read_text() == "first"
    assert (box.root / "nursery.log").read_text() == ""


@on_a_box
async def test_fork_server_start_is_retried(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [OSError(errno.EAGAIN, "no process to spare")] * 3
    popen = fork_server_client.subprocess.Popen

    def refuse_first(*words: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return popen(*words, **options)

    monkeypatch.setattr(fork_server_client.subprocess, "Popen", refuse_first)
    _kill_fork_server(box)
    await box.start("job", sh("exit 2"))
    assert await box.end_of("job") == 2
    assert not refusals


@on_a_box
async def test_fork_server_that_dies_with_a_full_socket(box: Box) -> None:
    """The fork server is stopped (SIGSTOP), so that requests fill its socket."""
    process = box.engine._workers._fork_server._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    names = [f"job-{number}" for number in range(400)]
    async with asyncio.timeout(60):
        for name in names:
            box.engine._workers._fork_server.ask(f"{name}/1/0")
        os.kill(process.pid, signal.SIGKILL)
        await box.start("job", sh("exit 2"))
        assert await box.end_of("job") == 2


def _refuse_first(
    monkeypatch: pytest.MonkeyPatch, owner: object, *, name: str, answers: list[Any]
) -> list[Any]:
    """Patch a function: its first calls return these values or raise these errors."""
    real = getattr(owner, name)

    def call(*words: Any) -> Any:
        if not answers:
            return real(*words)
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    monkeypatch.setattr(workers, "TRY_AGAIN_S", 0.0)
    monkeypatch.setattr(owner, name, call)
    return answers


NO_FILE = OSError(errno.EMFILE, "Too many open files")


@on_a_box
async def test_kill_of_orphans_is_retried(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    await box.run_until_output("job", "ready", FOREVER)
    left = _refuse_first(monkeypatch, workers, name="kill_orphans", answers=[NO_FILE] * 3)
    with capture_logs() as logs:
        os.kill(box.supervisor_pid("job"), signal.SIGKILL)
        assert await box.end_of("job") == -1
    assert not left
    assert not box.processes("job")
    assert [each["worker"] for each in logs] == ["job/1/0"]


@on_a_box
async def test_read_of_the_exit_record_is_retried(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    await box.start("job", sh("trap 'exit 6' USR1; echo $$ ready; while :; do sleep 0.01; done"))
    pid, _ = (await box.says("job", "ready")).split()
    # Only a supervisor of this daemon sends its exit record to the daemon.
    await box.restart()
    await box.adopt()
    folders = box.engine._workers._dirs
    left = _refuse_first(monkeypatch, folders, name="exit_record", answers=[NO_FILE] * 3)
    os.kill(int(pid), signal.SIGUSR1)
    assert await box.end_of("job") == 6
    assert not left


@on_a_box
async def test_stop_is_retried(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = box.engine._workers._dirs
    answers = [None, NO_FILE, NO_FILE]
    left = _refuse_first(monkeypatch, folders, name="lock", answers=answers)
    await box.stop("job")
    assert await box.end_of("job") == 143
    assert not left


@on_a_box
async def test_watch_of_a_supervisor_is_retried(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    left = _refuse_first(monkeypatch, workers.Workers, name="_watch", answers=[NO_FILE] * 3)
    assert (await box.run("job", sh("exit 2"))).code == 2
    assert not left


def _kill_fork_server(box: Box) -> None:
    process = box.engine._workers._fork_server._process
    if process is not None:
        os.kill(process.pid, signal.SIGKILL)


@on_a_box
async def test_new_workers_join_with_the_next_ranks(box: Box) -> None:
    """Worker 2 replaces worker 1 and uses the same port."""
    program = sh("echo $RANK $WORLD_SIZE $ROTA_GENERATION $MASTER_PORT; sleep 1000")
    await box.start("job", program, workers=2)
    slots = (Slot(NODE, (0,)), Slot(NODE, (2,)))
    change = ChangeMembership(JobId("job"), 1, 1, slots, (0, 2))
    for _ in range(2):
        await box.engine.apply(change, program)
    *first, port = (await box.says("job", "\n")).split()
    assert first == ["0", "2", "0"]
    assert (await box.says("job", "\n", worker=2)).split() == ["1", "2", "1", port]
    assert len(box.folders.live()) == 3


@on_a_box
async def test_no_worker_joins_an_ended_attempt(box: Box) -> None:
    await box.run("job", sh("exit 3"))
    box.facts.clear()
    slots = (Slot(NODE, (0,)), Slot(NODE, (1,)))
    await box.engine.apply(ChangeMembership(JobId("job"), 1, 1, slots, (0, 1)), FOREVER)
    assert [await box.end_of("job", worker=worker) for worker in range(2)] == [3, 0]


@pytest.mark.parametrize("seed", seeds(100))
@on_a_box
async def test_kills_at_random_moments(box: Box, seed: int) -> None:
    """Daemon, fork server, supervisors and workers die at random while jobs start and stop: then
    every job has ended, was started at most once, and left no process."""
    chance = random.Random(seed)
    jobs = [f"job{number}" for number in range(6)]
    program = sh("echo once; while :; do sleep 0.05; done")
    for job_id in jobs:
        await box.start(job_id, program)
        await asyncio.sleep(chance.random() * 0.02)
        match chance.randrange(5):
            case 0:
                await box.restart()
                await box.adopt()
                await box.start(job_id, program)
            case 1:
                _kill_fork_server(box)
            case 2:
                _kill_one(box, chance.choice(jobs))
            case _:
                pass
    for job_id in jobs:
        await box.stop(job_id, grace_s=chance.choice([0.0, 60.0]))
    for job_id in jobs:
        await box.end_of(job_id)
        assert not box.processes(job_id)
        log = box.place(job_id) / "worker-0.log"
        assert not log.exists() or log.read_text() in ("", "once\n")


def _kill_one(box: Box, job_id: str) -> None:
    """Kill the supervisor of a job, if it has one."""
    keeper = box.folders.supervisor(WorkerKey(job_id, 1, 0))
    pidfd = keeper.open() if keeper else None
    if pidfd is not None:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


@on_a_box
async def test_many_workers_in_a_row(box: Box) -> None:
    for number in range(20):
        assert (await box.run(f"job{number}", sh("exit 0"))).code == 0
    started = {fact.job_id for fact in box.facts if isinstance(fact, WorkersStarted)}
    assert len(started) == 20
    assert box.folders.live() == []
