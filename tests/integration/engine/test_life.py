"""A worker's start, account, environment and exit."""

import os
import signal

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers
from rota.core.model.job import JobId
from rota.engines.interface import Program, UnixAccount
from tests.integration.engine.box import NODE, Box, on_a_box, sh

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may run workers as others")


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
@on_a_box
async def test_exit_code_of_the_program(box: Box, code: int) -> None:
    ending = await box.run("job", sh(f"exit {code}"))
    assert (ending.code, ending.is_stopped) == (code, False)
    assert 0 < ending.started_s <= ending.ended_s
    assert await box.reason_of("job") == ending.reason


@pytest.mark.parametrize(
    ("script", "at_once", "later"),
    [
        ("exit 0", "", ""),
        ("exit 1", "exited within a second of its start and wrote nothing", ""),
        ("echo no; exit 1", "exited within a second of its start", ""),
        ("sleep 2; exit 1", "exited within a second of its start and wrote nothing", ""),
        ("exit 137", "exited within a second of its start and wrote nothing", ""),
        ("kill -SEGV $$", "ended by SIGSEGV within a second of its start", "ended by SIGSEGV"),
        (
            "sleep 2; kill -KILL $$",
            "ended by SIGKILL within a second of its start",
            "ended by SIGKILL",
        ),
    ],
)
@on_a_box
async def test_exit_reasons(box: Box, script: str, at_once: str, later: str) -> None:
    ending = await box.run("job", sh(script))
    # From the exit record: on a busy machine, events can be late.
    is_quick = ending.ended_s - ending.started_s < 1
    assert ending.reason == (at_once if is_quick else later)


@on_a_box
async def test_start_is_reported_before_the_end(box: Box) -> None:
    await box.run("job", Program(("true",)))
    assert [type(fact).__name__ for fact in box.facts] == ["WorkersStarted", "WorkersExited"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
@on_a_box
async def test_exit_by_signal_is_128_plus_signal(box: Box, number: int) -> None:
    assert (await box.run("job", sh(f"kill -{int(number)} $$"))).code == 128 + number


@on_a_box
async def test_workers_end_independently(box: Box) -> None:
    await box.start("job", sh("exit $RANK"), workers=3)
    assert [await box.end_of("job", worker=worker) for worker in range(3)] == [0, 1, 2]


@on_a_box
async def test_the_environment_is_built_from_scratch(box: Box) -> None:
    account = UnixAccount(name="ada", home="/home/ada")
    program = sh("exec env", env={"MINE": "yes", "RANK": "77"}, account=account)
    slots = (Slot(NODE, (2,)), Slot(NODE, (1, 3)))
    await box.engine.apply(StartWorkers(JobId("job"), 2, 0, slots), program)
    await box.end_of("job", attempt=2, worker=1)
    found = (box.folders.jobs / "job/2/1/worker-1.log").read_text()
    env = dict(line.split("=", 1) for line in found.splitlines())
    port, marker = env.pop("MASTER_PORT"), env.pop("ROTA_WORKER")
    assert 1024 < int(port) < 65536
    assert marker.startswith("job/2/1/")
    assert env == {
        "PATH": env["PATH"],
        "HOME": "/home/ada",
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "PWD": "/",
        "MINE": "yes",
        "RANK": "1",
        "NUM_GPUS": "2",
        "ROTA_GPUS": "3",
        "ROTA_NODES": "1",
        "ROTA_PROCESSES": "2",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "CUDA_VISIBLE_DEVICES": "1,3",
        "ROTA_JOB": "job",
        "ROTA_ATTEMPT": "2",
        "ROTA_GENERATION": "0",
        "ROTA_RESTARTED": "1",
    }


@on_a_box
async def test_workers_of_an_attempt_share_a_port(box: Box) -> None:
    await box.start("job", sh("echo $MASTER_PORT"), workers=2)
    await box.end_of("job", worker=0)
    await box.end_of("job", worker=1)
    assert await box.output("job", worker=0) == await box.output("job", worker=1)


@on_a_box
async def test_worker_inherits_nothing(box: Box) -> None:
    """Empty stdin, no open file of the supervisor, no ignored or blocked signal."""
    script = "cat; ls /proc/self/fd | wc -l; grep -E 'SigIgn|SigBlk' /proc/self/status"
    await box.run("job", sh(script))
    n_files, *signals = (await box.output("job")).decode().split("\n")[:-1]
    assert int(n_files) == 4  # Three, and the listed folder itself.
    assert [line.split()[1] for line in signals] == ["0" * 16] * 2


@needs_root
@on_a_box
async def test_a_worker_runs_as_its_user(box: Box) -> None:
    account = UnixAccount("nobody", uid=NOBODY, gid=NOBODY, groups=(NOBODY, 1234))
    ending = await box.run("job", sh("id -u; id -g; id -G; umask", account=account, umask=0o027))
    assert ending.code == 0
    assert (await box.output("job")).decode().split() == [
        *("65534", "65534", "65534", "1234"),
        "0027",
    ]


@needs_root
@on_a_box
async def test_forbidden_workdir(box: Box) -> None:
    secret = box.root.parent / "secret"
    secret.mkdir(mode=0o700)
    account = UnixAccount("nobody", uid=NOBODY, gid=NOBODY)
    ending = await box.run("job", sh("pwd", account=account, workdir=str(secret)))
    expected = f"user 65534 cannot enter working directory '{secret}': permission denied"
    assert (ending.code, ending.reason) == (126, expected)


@on_a_box
async def test_missing_workdir(box: Box) -> None:
    ending = await box.run("job", sh("pwd", workdir="/no/such/folder"))
    assert ending.code == 126
    assert "'/no/such/folder'" in ending.reason
    assert "no such file or directory" in ending.reason


@on_a_box
async def test_missing_program(box: Box) -> None:
    ending = await box.run("job", Program(("no-such-program",), env={"PATH": "/bin:/usr/bin"}))
    expected = "program 'no-such-program' not found in PATH (/bin:/usr/bin)"
    assert (ending.code, ending.reason) == (127, expected)
    assert await box.reason_of("job") == expected
    assert [type(fact).__name__ for fact in box.facts] == ["WorkersExited"]
    assert not list(box.place("job").glob("*.reserved"))


@pytest.mark.parametrize(
    ("content", "mode", "code", "words"),
    [
        ("#!/bin/sh\n", 0o600, 126, "is not executable: permission denied"),
        ("#!/no/such/interpreter\n", 0o700, 127, "needs an interpreter that does not exist"),
        ("just words\n", 0o700, 126, "neither a binary for this machine nor a script"),
    ],
)
@on_a_box
async def test_program_that_cannot_run(
    box: Box, content: str, mode: int, code: int, words: str
) -> None:
    script = box.root.parent / "script"
    script.write_text(content)
    script.chmod(mode)
    ending = await box.run("job", Program((str(script),)))
    assert ending.code == code
    assert f"program '{script}'" in ending.reason
    assert words in ending.reason


@on_a_box
async def test_job_id_cannot_leave_the_directory(box: Box) -> None:
    with pytest.raises(Exception, match="not a valid directory name"):
        await box.start("../../etc", Program(("true",)))
