"""Worker output is complete, bounded and in order, and never blocks the worker."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.core.model.events import WorkersLost
from rota.core.model.job import JobId
from rota.engines.interface import LogLimits, LogQuery, WorkerId
from tests.integration.engine.box import Box, on_a_box, sh
from tests.support.seed_counts import IS_LONG

MIB = 1024**2
SMALL = LogLimits(file_bytes=8192, files=3)


@on_a_box
async def test_both_streams_in_order(box: Box) -> None:
    await box.run("job", sh("echo one; echo two >&2; printf three"))
    assert await box.output("job") == b"one\ntwo\nthree"


@on_a_box
async def test_endless_line_is_bounded(box: Box) -> None:
    """1 GB in one line uses neither much memory nor disk, and does not block the worker."""
    n_bytes = 1024 * MIB if IS_LONG else 128 * MIB
    limits = LogLimits(file_bytes=4 * MIB, files=3)
    program = sh(f"head -c {n_bytes} /dev/zero | tr '\\0' x; echo; echo end", log=limits)
    ending = await box.run("job", program)
    assert (ending.code, ending.n_dropped_bytes) == (0, 0)
    size = "1 GiB" if IS_LONG else "128 MiB"
    assert ending.reason == f"wrote a line of {size}, which is longer than a log file"
    sizes = [path.stat().st_size for path in _log_files(box)]
    assert len(sizes) == 3
    assert max(sizes) <= 4 * MIB
    assert (await box.output("job")).endswith(b"xxx\nend\n")


@on_a_box
async def test_rotation_keeps_the_newest_lines_whole(box: Box) -> None:
    await box.run("job", sh("seq 10000", log=SMALL))
    lines = (await box.output("job")).split()
    assert lines == [b"%d" % number for number in range(10001 - len(lines), 10001)]
    assert 8192 < sum(path.stat().st_size for path in _log_files(box)) <= 8192 * 3


def _log_files(box: Box) -> list[Path]:
    return [path for path in box.place("job").glob("worker-0.log*") if ".times" not in path.name]


@pytest.mark.parametrize("tail", [0, 1, 3, 2000, 20_000])
@on_a_box
async def test_tail(box: Box, tail: int) -> None:
    await box.run("job", sh("seq 10000", log=SMALL))
    everything = (await box.output("job")).splitlines(keepends=True)
    expected = everything[-tail:] if tail else []
    assert (await box.output("job", LogQuery(tail=tail))).splitlines(keepends=True) == expected


@pytest.mark.parametrize("n_bytes", [0, 1, 10_000, 1_000_000])
@on_a_box
async def test_tail_bytes(box: Box, n_bytes: int) -> None:
    """With lines of any length."""
    await box.run("job", sh("seq 3000 | tr '\\n' ' '", log=SMALL))
    everything = await box.output("job")
    expected = everything[-n_bytes:] if n_bytes else b""
    assert await box.output("job", LogQuery(tail_bytes=n_bytes)) == expected


@on_a_box
async def test_follow_ends_with_the_worker_and_misses_nothing(box: Box) -> None:
    script = "for i in $(seq 200); do seq $i; done; trap 'echo bye; exit 0' TERM; echo ready; "
    await box.run_until_output("job", "ready", sh(script + "while :; do sleep 0.01; done"))
    worker = WorkerId(JobId("job"), 1, 0)
    found: list[bytes] = []
    async for chunk in box.engine.logs(worker, LogQuery(follow=True, tail=1)):
        if not found:
            await box.stop("job")
        found.append(chunk.output)
    # The shell may also print that the stop ended its sleep.
    assert b"".join(found).replace(b"Terminated\n", b"") == b"ready\nbye\n"


@on_a_box
async def test_follow_crosses_rotations(box: Box) -> None:
    limits = LogLimits(file_bytes=64 * 1024, files=50)
    await box.start("job", sh("for i in $(seq 20); do seq 1000; done", log=limits))
    await box.start_of("job")
    expected = b"".join(b"%d\n" % number for number in range(1, 1001)) * 20
    assert await box.output("job", LogQuery(follow=True)) == expected


@on_a_box
async def test_reading_continues_from_any_position(box: Box) -> None:
    """From every position, across rotations: no output twice and none missing."""
    limits = LogLimits(file_bytes=16 * 1024, files=50)
    await box.run("job", sh("for i in $(seq 10); do seq 1000; done", log=limits))
    found = box.engine.logs(WorkerId(JobId("job"), 1, 0), LogQuery(tail=8000, follow=True))
    chunks = [chunk async for chunk in found]
    assert len(chunks) > 3
    for number, chunk in enumerate(chunks, 1):
        rest = await box.output("job", LogQuery(place=chunk.place, follow=True))
        assert rest == b"".join(each.output for each in chunks[number:])


@on_a_box
async def test_position_in_a_deleted_file_reads_everything(box: Box) -> None:
    await box.run("job", sh("seq 10"))
    for place in ("1-1.000-5", "nonsense"):
        assert await box.output("job", LogQuery(place=place)) == await box.output("job")


@on_a_box
async def test_output_has_times(box: Box) -> None:
    before = time.time()
    go_on = box.place("job").parent / "go-on"
    script = f"echo early; while [ ! -e {go_on} ]; do sleep 0.01; done; echo late"
    await box.run_until_output("job", "early", sh(script))
    await asyncio.sleep(0.3)
    go_on.touch()
    await box.end_of("job")
    found = box.engine.logs(WorkerId(JobId("job"), 1, 0), LogQuery())
    early, late = [chunk async for chunk in found]
    assert (early.output, late.output) == (b"early\n", b"late\n")
    assert before - 0.01 <= early.at_s <= late.at_s - 0.2 <= time.time()
    assert await box.output("job", LogQuery(since_s=early.at_s + 0.1)) == b"late\n"


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "rota-test", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_does_not_end_the_job(tmp_path: Path) -> None:
    """Output that does not fit is dropped and counted; the exit record has reserved space."""
    with _small_disk(tmp_path / "engine"):
        asyncio.run(_fill_the_disk(tmp_path / "engine"))


async def _fill_the_disk(root: Path) -> None:
    async with Box(root) as box:
        script = "head -c 2000000 /dev/zero | tr '\\0' x; echo end; exit 3"
        ending = await box.run("job", sh(script))
        assert ending.code == 3
        assert not list(box.place("job").glob("*.reserved"))
        assert ending.n_dropped_bytes > 1_500_000
        assert "MiB of output: no space left on device" in ending.reason


def test_daemons_on_different_disks_use_different_cgroups(tmp_path: Path) -> None:
    """The top directories of two disks may have the same inode number."""
    with _small_disk(tmp_path / "one"), _small_disk(tmp_path / "other"):
        asyncio.run(_end_one_of_two(tmp_path / "one", tmp_path / "other"))


async def _end_one_of_two(one: Path, other: Path) -> None:
    async with Box(one) as ends, Box(other) as goes_on:
        for box in (ends, goes_on):
            await box.run_until_output("job", "ready", sh("echo ready; sleep 600"))
        os.kill(ends.supervisor_pid("job"), signal.SIGKILL)
        await ends.until(lambda fact: isinstance(fact, WorkersLost))
        assert goes_on.processes("job")


@pytest.mark.parametrize("free_bytes", [4096, 8192, 12288])
def test_disk_without_space_for_a_supervisor(tmp_path: Path, free_bytes: int) -> None:
    with _small_disk(tmp_path / "engine"):
        asyncio.run(_start_on_a_full_disk(tmp_path / "engine", free_bytes))


async def _start_on_a_full_disk(root: Path, free_bytes: int) -> None:
    """The worker never ran, and its GPU is free."""
    async with Box(root) as box:
        (root / "ballast").write_bytes(b"x" * (_free_bytes(root) - free_bytes))
        await box.start("job", sh("exit 3"))
        assert await box.end_of("job") == -1
        (fact,) = box.facts
        assert isinstance(fact, WorkersLost)
        assert fact.reason == "could not be started: supervisor died: no space left on device"


def test_note_about_dropped_output_when_there_is_space_again(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "engine"):
        asyncio.run(_make_room_again(tmp_path / "engine"))


async def _make_room_again(root: Path) -> None:
    ballast = root / "ballast"
    fill, go_on = root.parent / "fill", root.parent / "go-on"
    os.mkfifo(fill)
    os.mkfifo(go_on)
    script = f"echo ready; read go <{fill}; head -c 200000 /dev/zero | tr '\\0' x; echo;"
    async with Box(root) as box:
        await box.run_until_output("job", "ready", sh(f"{script} read go <{go_on}; echo end"))
        ballast.write_bytes(b"x" * (_free_bytes(root) - 65536))
        await asyncio.to_thread(fill.write_text, "go\n")
        # When the worker reads again, it has written all its output.
        await asyncio.to_thread(go_on.write_text, "go\n")
        ballast.unlink()
        await box.end_of("job")
        ending = box.ending("job")
        assert ending.code == 0
        note = rb"\[rota\] (\d+) bytes of output were dropped here: no space left on device\n"
        said = sum(int(number) for number in re.findall(note, await box.output("job")))
        assert said == ending.n_dropped_bytes > 0


def _free_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_bsize
