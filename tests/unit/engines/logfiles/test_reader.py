"""Readers of a log: rotated files are closed, and followers share chunks and one watch."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from rota.engines.interface import LogChunk, LogQuery
from rota.engines.logfiles import reader
from rota.engines.logfiles.writer import FILE_BYTES_MIN, LogFile

LINE = b"x" * 1023 + b"\n"


def open_logs(folder: Path) -> list[str]:
    """The files of the log that this process has open."""
    targets = [
        str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
    ]
    return [each for each in targets if each.startswith(str(folder))]


async def bytes_until(chunks: AsyncIterator[LogChunk], n_bytes: int) -> bytes:
    found = b""
    while len(found) < n_bytes:
        found += (await anext(chunks)).output
    return found


@pytest.mark.parametrize("n_followers", [1, 20])
def test_followers_close_rotated_files(tmp_path: Path, n_followers: int):
    path = tmp_path / "log"
    log = LogFile(str(path), file_bytes=FILE_BYTES_MIN, n_files=3)
    log.write(LINE, 1.0)
    is_over = False

    async def scenario() -> None:
        nonlocal is_over
        query = LogQuery(follow=True)
        followers = [
            reader.read(path, query, has_ended=lambda: is_over) for _ in range(n_followers)
        ]
        for each in followers:
            await bytes_until(each, len(LINE))
        for number in range(2, 40):
            log.write(LINE, float(number))
            for each in followers:
                assert await bytes_until(each, len(LINE)) == LINE
            assert len(open_logs(tmp_path)) <= 2 + 4 * n_followers
            assert not [each for each in open_logs(tmp_path) if each.endswith("(deleted)")]
        is_over = True
        for each in followers:
            assert [chunk.output async for chunk in each] == []

    asyncio.run(scenario())
    log.close()
    assert open_logs(tmp_path) == []


def test_files_are_read_in_threads_and_chunks_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "log"
    log = LogFile(str(path), file_bytes=2**20, n_files=1)
    log.write(LINE * 500, 1.0)
    log.close()
    n_reads: list[int] = []
    pread = os.pread

    def counted(fd: int, n_bytes: int, offset: int) -> bytes:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        n_reads.append(offset)
        return pread(fd, n_bytes, offset)

    monkeypatch.setattr(os, "pread", counted)

    async def scenario() -> list[bytes]:
        query = LogQuery()
        readers = [reader.read(path, query, has_ended=lambda: True) for _ in range(50)]
        return [b"".join([chunk.output async for chunk in each]) for each in readers]

    found = asyncio.run(scenario())
    assert set(found) == {LINE * 500}
    assert 8 <= len(n_reads) < 8 + 2 * 50


def test_followers_that_wait_share_one_watch(tmp_path: Path):
    path = tmp_path / "log"
    log = LogFile(str(path), file_bytes=2**20, n_files=1)
    log.write(LINE, 1.0)

    async def scenario() -> None:
        followers = [
            reader.read(path, LogQuery(follow=True), has_ended=lambda: False) for _ in range(20)
        ]
        for each in followers:
            await bytes_until(each, len(LINE))
        waiting = [asyncio.ensure_future(bytes_until(each, len(LINE))) for each in followers]
        await asyncio.sleep(0)
        log.write(LINE, 2.0)
        assert await asyncio.gather(*waiting) == [LINE] * 20
        n_polls = [each for each in asyncio.all_tasks() if "_poll" in repr(each)]
        assert len(n_polls) == 1
        for each in followers:
            async with aclosing(cast("Any", each)):
                pass

    asyncio.run(scenario())
    log.close()
