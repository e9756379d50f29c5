"""Commands beside a worker share its environment and never survive it."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from rota.core.model.job import JobId
from rota.engines.interface import (
    ExecSpec,
    SessionExit,
    Terminal,
    UnixAccount,
    WorkerId,
    WorkerSession,
)
from rota.engines.local import exec_client
from rota.engines.local.supervisor import state_files
from rota.errors import UnavailableError
from tests.integration.engine.box import Box, on_a_box, sh
from tests.integration.engine.test_containers import in_image
from tests.support.timeouts import PATIENCE_S

WORKER = WorkerId(JobId("job"), 1, 0)
FOREVER = "echo ready; while :; do sleep 0.05; done"
STUBBORN = "trap '' HUP TERM; echo here; (setsid sh -c 'while :; do sleep 0.05; done' &); "
STUBBORN += "while :; do sleep 0.05; done"


async def exec_in(box: Box, *argv: str, terminal: Terminal | None = None) -> WorkerSession:
    return await box.engine.exec_command(WORKER, ExecSpec(argv, terminal))


async def output(session: WorkerSession, number: int = 1) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        while chunk := await session.read(number):
            found += chunk
    return found


async def until(session: WorkerSession, word: bytes) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        while word not in found:
            chunk = await session.read(1)
            assert chunk, found
            found += chunk
    return found


async def done(session: WorkerSession) -> SessionExit:
    async with asyncio.timeout(PATIENCE_S):
        return await session.wait()


async def until_only(box: Box, n_processes: int) -> None:
    """Poll until only these are left: the engine does not report processes of a command."""
    give_up_at = time.monotonic() + PATIENCE_S
    while len(box.processes("job")) > n_processes:
        assert time.monotonic() < give_up_at
        await asyncio.to_thread(time.sleep, 0.02)


@on_a_box
async def test_command_has_the_workers_environment(box: Box) -> None:
    folder = box.root.parent
    program = sh(FOREVER, env={"MINE": "a"}, workdir=str(folder), umask=0o027)
    await box.run_until_output("job", "ready", program)
    script = "echo $MINE $ROTA_JOB $CUDA_VISIBLE_DEVICES; pwd; umask; cat /proc/self/cgroup"
    session = await exec_in(box, "/bin/sh", "-c", f"{script}; echo no >&2; exit 7")
    said = (await output(session)).decode().splitlines()
    assert said[:3] == ["a job 0", str(folder), "0027"]
    spec = box.folders.spec(box.folders.live()[0])
    assert spec is not None
    assert all(Path(group).name in "".join(said[3:]) for group in spec.cgroups.values())
    assert await output(session, 2) == b"no\n"
    assert await done(session) == SessionExit(7)
    session.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may run as another user")
@on_a_box
async def test_command_has_the_workers_rights(box: Box) -> None:
    account = UnixAccount("nobody", "/", uid=65534, gid=65534, groups=(65534, 12))
    await box.run_until_output("job", "ready", sh(FOREVER, account=account))
    session = await exec_in(box, "sh", "-c", "id -u; id -g; id -G")
    assert (await output(session)).split() == [b"65534", b"65534", b"65534", b"12"]
    shell = await exec_in(box, terminal=Terminal(30, 90))
    await shell.write(b"id -u; stty size; test -w $(tty) && echo o''wn\nexit 3\n")
    assert b"65534\r\n30 90\r\nown\r\n" in await until(shell, b"own\r\n")
    assert (await done(shell)).code == 3
    for each in (session, shell):
        each.close()


@on_a_box
async def test_command_that_cannot_run(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(FOREVER))
    session = await exec_in(box, "no-such-program")
    left = await done(session)
    assert left.code == 127
    assert left.reason.startswith("program 'no-such-program' not found in PATH")
    session.close()


@on_a_box
async def test_closed_session_ends_the_command_and_its_descendants(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(FOREVER))
    session = await exec_in(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    assert len(box.processes("job")) > 2  # one that is just starting another is not always seen
    session.close()
    await until_only(box, 2)


@on_a_box
async def test_descendants_end_with_the_command(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(FOREVER))
    session = await exec_in(box, "sh", "-c", "(trap '' HUP; setsid sleep 1000) & exit 4")
    assert (await done(session)).code == 4
    await until_only(box, 2)
    assert await output(session) == b""
    session.close()


@pytest.mark.parametrize("how", ["stop", "end"])
@on_a_box
async def test_commands_end_with_the_worker(box: Box, how: str) -> None:
    fifo = box.root / "fifo"
    os.mkfifo(fifo)
    await box.run_until_output("job", "ready", sh(f"echo ready; read line < {fifo}; exit 5"))
    session = await exec_in(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    if how == "stop":
        await box.stop("job")
    else:
        await asyncio.to_thread(fifo.write_text, "go\n")
    left = asyncio.ensure_future(done(session))
    await box.end_of("job")
    assert not box.processes("job"), "ended before the end was reported"
    assert await left == SessionExit(137, "worker ended")
    ending = box.ending("job")
    assert (ending.n_left_behind, ending.is_killed) == (0, False)
    session.close()
    with pytest.raises(UnavailableError, match="unreachable"):
        await exec_in(box, "true")


@on_a_box
async def test_commands_end_when_their_supervisor_is_killed(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(FOREVER))
    session = await exec_in(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    os.kill(box.supervisor_pid("job"), signal.SIGKILL)
    assert await box.end_of("job") == -1
    assert not box.processes("job")
    assert await done(session) == SessionExit(255, "worker lost")
    session.close()


@on_a_box
async def test_commands_end_with_the_daemon_and_workers_continue(box: Box) -> None:
    """The kernel closes all connections of a dead daemon, as `close` does."""
    await box.run_until_output("job", "ready", sh(FOREVER))
    session = await exec_in(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    session.close()
    await box.restart()
    assert await box.adopt() == {"job"}
    await until_only(box, 2)
    again = await exec_in(box, "echo", "still here")
    assert await output(again) == b"still here\n"
    again.close()


@on_a_box
async def test_long_directory_name(box: Box) -> None:
    job_id = "j" * 120
    await box.run_until_output(job_id, "ready", sh(FOREVER))
    session = await box.engine.exec_command(WorkerId(JobId(job_id), 1, 0), ExecSpec(("echo", "in")))
    assert await output(session) == b"in\n"
    session.close()


@on_a_box
async def test_invalid_requests_do_not_hurt_the_worker(box: Box) -> None:
    await box.run_until_output("job", "ready", sh(FOREVER))
    for words in (b"", b"nonsense", b"[]", b'{"argv": 1}'):
        line = exec_client.connect_supervisor(box.place("job"))
        assert line is not None
        if words:
            line.send(words)
        line.close()
    session = await exec_in(box, "echo", "in")
    assert await output(session) == b"in\n"
    session.close()
    assert (box.place("job") / state_files.EXEC_SOCKET).exists()


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_command_runs_in_the_container(box: Box) -> None:
    await box.run_until_output("job", "ready", in_image(FOREVER, env={"MINE": "a"}))
    session = await exec_in(box, "sh", "-c", "echo $MINE $ROTA_JOB; ls /; cat >&2; exit 6")
    await session.write(b"written")
    await session.finish()
    first, *folders = (await output(session)).decode().splitlines()
    assert first == "a job"
    assert "home" not in folders, "this is not the machine's own root"
    assert await output(session, 2) == b"written"
    assert (await done(session)).code == 6
    session.close()
    shell = await exec_in(box, terminal=Terminal(31, 91))
    await shell.write(b"stty size; ls -d /home; exit 2\n")
    said = await output(shell)
    assert b"31 91\r\n" in said
    assert b"cannot access '/home'" in said
    assert (await done(shell)).code == 2
    shell.close()


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_closed_session_ends_a_command_in_a_container(box: Box) -> None:
    await box.run_until_output("job", "ready", in_image(FOREVER))
    before = len(box.processes("job"))
    session = await exec_in(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    assert len(box.processes("job")) > before
    session.close()
    await until_only(box, before)
    session = await exec_in(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    await box.stop("job", grace_s=5.0)
    await box.end_of("job")
    assert not box.processes("job")
    session.close()
