"""Commands beside a worker: what they share with it, and that they never outlive it."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from rota.core.model import JobId
from rota.engines.base import Account, Left, Session, Terminal, Visit, WorkerId
from rota.engines.local import files, visits
from rota.errors import UnavailableError
from tests.integration.engine.box import Box, on_a_box, sh
from tests.integration.engine.test_containers import in_image
from tests.patience import PATIENCE_S

WORKER = WorkerId(JobId("job"), 1, 0)
FOREVER = "echo ready; while :; do sleep 0.05; done"
STUBBORN = "trap '' HUP TERM; echo here; (setsid sh -c 'while :; do sleep 0.05; done' &); "
STUBBORN += "while :; do sleep 0.05; done"


async def visit(box: Box, *argv: str, terminal: Terminal | None = None) -> Session:
    return await box.engine.visit(WORKER, Visit(argv, terminal))


async def output(session: Session, number: int = 1) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        while chunk := await session.read(number):
            found += chunk
    return found


async def until(session: Session, word: bytes) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        while word not in found:
            chunk = await session.read(1)
            assert chunk, found
            found += chunk
    return found


async def done(session: Session) -> Left:
    async with asyncio.timeout(PATIENCE_S):
        return await session.left()


async def until_only(box: Box, n_processes: int) -> None:
    """Looks until no more are left: nobody reports the end of a command's processes."""
    give_up_at = time.monotonic() + PATIENCE_S
    while len(box.processes("job")) > n_processes:
        assert time.monotonic() < give_up_at
        await asyncio.to_thread(time.sleep, 0.02)


@on_a_box
async def test_a_command_has_what_its_worker_has(box: Box) -> None:
    folder = box.root.parent
    program = sh(FOREVER, env={"MINE": "a"}, workdir=str(folder), umask=0o027)
    await box.run_until_it_says("job", "ready", program)
    script = "echo $MINE $ROTA_JOB $CUDA_VISIBLE_DEVICES; pwd; umask; cat /proc/self/cgroup"
    session = await visit(box, "/bin/sh", "-c", f"{script}; echo no >&2; exit 7")
    said = (await output(session)).decode().splitlines()
    assert said[:3] == ["a job 0", str(folder), "0027"]
    order = box.folders.order(box.folders.live()[0])
    assert order is not None
    assert all(Path(group).name in "".join(said[3:]) for group in order.cgroups.values())
    assert await output(session, 2) == b"no\n"
    assert await done(session) == Left(7)
    session.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may run as somebody else")
@on_a_box
async def test_a_command_has_its_workers_rights(box: Box) -> None:
    account = Account("nobody", "/", uid=65534, gid=65534, groups=(65534, 12))
    await box.run_until_it_says("job", "ready", sh(FOREVER, account=account))
    session = await visit(box, "sh", "-c", "id -u; id -g; id -G")
    assert (await output(session)).split() == [b"65534", b"65534", b"65534", b"12"]
    shell = await visit(box, terminal=Terminal(30, 90))
    await shell.write(b"id -u; stty size; test -w $(tty) && echo o''wn\nexit 3\n")
    assert b"65534\r\n30 90\r\nown\r\n" in await until(shell, b"own\r\n")
    assert (await done(shell)).code == 3
    for each in (session, shell):
        each.close()


@on_a_box
async def test_a_command_that_cannot_be_run(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(FOREVER))
    session = await visit(box, "no-such-program")
    left = await done(session)
    assert left.code == 127
    assert left.reason.startswith("program 'no-such-program' was not found in PATH")
    session.close()


@on_a_box
async def test_a_command_that_is_let_go_of_ends_with_all_that_it_started(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(FOREVER))
    session = await visit(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    assert len(box.processes("job")) > 2  # one that is just starting another is not always seen
    session.close()
    await until_only(box, 2)


@on_a_box
async def test_what_a_command_leaves_behind_ends_with_it(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(FOREVER))
    session = await visit(box, "sh", "-c", "(trap '' HUP; setsid sleep 1000) & exit 4")
    assert (await done(session)).code == 4
    await until_only(box, 2)
    assert await output(session) == b""
    session.close()


@pytest.mark.parametrize("how", ["stop", "end"])
@on_a_box
async def test_a_worker_takes_its_commands_along(box: Box, how: str) -> None:
    fifo = box.root / "fifo"
    os.mkfifo(fifo)
    await box.run_until_it_says("job", "ready", sh(f"echo ready; read line < {fifo}; exit 5"))
    session = await visit(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    if how == "stop":
        await box.stop("job")
    else:
        await asyncio.to_thread(fifo.write_text, "go\n")
    left = asyncio.ensure_future(done(session))
    await box.end_of("job")
    assert not box.processes("job"), "ended before the end was reported"
    assert await left == Left(137, "its worker ended")
    ending = box.ending("job")
    assert (ending.n_left_behind, ending.is_killed) == (0, False)
    session.close()
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await visit(box, "true")


@on_a_box
async def test_commands_end_when_their_keeper_is_killed(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(FOREVER))
    session = await visit(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    os.kill(box.keeper_pid("job"), signal.SIGKILL)
    assert await box.end_of("job") == -1
    assert not box.processes("job")
    assert await done(session) == Left(255, "its worker was lost")
    session.close()


@on_a_box
async def test_commands_end_with_their_daemon_and_workers_go_on(box: Box) -> None:
    """The kernel closes all lines of a daemon that dies, as `close` does."""
    await box.run_until_it_says("job", "ready", sh(FOREVER))
    session = await visit(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    session.close()
    await box.restart()
    assert await box.adopt() == {"job"}
    await until_only(box, 2)
    again = await visit(box, "echo", "still here")
    assert await output(again) == b"still here\n"
    again.close()


@on_a_box
async def test_a_folder_may_have_a_long_name(box: Box) -> None:
    job_id = "j" * 120
    await box.run_until_it_says(job_id, "ready", sh(FOREVER))
    session = await box.engine.visit(WorkerId(JobId(job_id), 1, 0), Visit(("echo", "in")))
    assert await output(session) == b"in\n"
    session.close()


@on_a_box
async def test_whatever_knocks_the_worker_goes_on(box: Box) -> None:
    await box.run_until_it_says("job", "ready", sh(FOREVER))
    for words in (b"", b"nonsense", b"[]", b'{"argv": 1}'):
        line = visits.knock(box.place("job"))
        assert line is not None
        if words:
            line.send(words)
        line.close()
    session = await visit(box, "echo", "in")
    assert await output(session) == b"in\n"
    session.close()
    assert (box.place("job") / files.DOOR).exists()


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_a_command_enters_the_container(box: Box) -> None:
    await box.run_until_it_says("job", "ready", in_image(FOREVER, env={"MINE": "a"}))
    session = await visit(box, "sh", "-c", "echo $MINE $ROTA_JOB; ls /; cat >&2; exit 6")
    await session.write(b"written")
    await session.finish()
    first, *folders = (await output(session)).decode().splitlines()
    assert first == "a job"
    assert "home" not in folders, "this is not the machine's own root"
    assert await output(session, 2) == b"written"
    assert (await done(session)).code == 6
    session.close()
    shell = await visit(box, terminal=Terminal(31, 91))
    await shell.write(b"stty size; ls -d /home; exit 2\n")
    said = await output(shell)
    assert b"31 91\r\n" in said
    assert b"cannot access '/home'" in said
    assert (await done(shell)).code == 2
    shell.close()


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_a_command_in_a_container_ends_when_it_is_let_go_of(box: Box) -> None:
    await box.run_until_it_says("job", "ready", in_image(FOREVER))
    before = len(box.processes("job"))
    session = await visit(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    assert len(box.processes("job")) > before
    session.close()
    await until_only(box, before)
    session = await visit(box, "sh", "-c", STUBBORN)
    await until(session, b"here")
    await box.stop("job", grace_s=5.0)
    await box.end_of("job")
    assert not box.processes("job")
    session.close()
