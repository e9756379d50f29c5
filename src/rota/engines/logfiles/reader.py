"""Read a worker's log files, also while the writer appends to them and rotates them.

`writer.py` describes the files. A position in a log (`LogChunk.place`) is
`INODE-TIME-OFFSET`: the inode of the file, the time of its first line, and the offset in the file.

Hundreds of followers may read one log of some hundred MB. Files are read in a few threads, one
chunk at a time; followers at the same position share the chunk, and those that wait for new output
share one watch of the file.
"""

from __future__ import annotations

import asyncio
import bisect
import os
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rota.engines.interface import LogChunk, LogQuery
from rota.thread_pools import LOGS

CHUNK_BYTES = 64 * 1024
SHARED_CHUNKS = 64
"""Chunks in the buffer of all followers: 4 MiB at most."""
POLL_S = 0.1
"""Interval at which a watch checks for new output."""
TAIL_BLOCK_BYTES = 64 * 1024
NO_LINE = "0.000"
"""Stands for the time of the first line if the file is empty."""
_PLACE = re.compile(
    r"(?P<inode>[0-9]{1,20})-(?P<first>[0-9.]{1,20})-(?P<offset>[0-9]{1,18})", re.ASCII
)
_shared: OrderedDict[tuple[int, str, int], LogChunk] = OrderedDict()
"""The chunks that were read last, by inode, time of the first line, and offset."""


@dataclass(slots=True)
class _Part:
    """One file of the log. It stays open until it is read, so that a rotation (which renames it)
    does no harm."""

    output: BinaryIO
    times: BinaryIO | None
    inode: int
    offset: int = 0
    offsets: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])

    @property
    def place(self) -> str:
        """The position of the next chunk. It holds the time of the first line besides the inode,
        because a new file can get the inode of a deleted one."""
        return f"{self.inode}-{self._first}-{self.offset}"

    def is_at(self, inode: str, first: str) -> bool:
        """Whether a position is in this file. The file may have been empty when it was taken."""
        self.learn_times()
        return inode == str(self.inode) and first in (self._first, NO_LINE)

    @property
    def size(self) -> int:
        return os.fstat(self.output.fileno()).st_size

    @property
    def _first(self) -> str:
        return f"{self.seconds[0]:.3f}" if self.seconds else NO_LINE

    def read_shared(self) -> LogChunk | None:
        """Return the next chunk if another follower has just read it. Does not block."""
        chunk = _shared.get((self.inode, self._first, self.offset)) if self.seconds else None
        if chunk is not None:
            self.offset += len(chunk.output)
        return chunk

    def read(self) -> LogChunk | None:
        """Return the next chunk. It ends where the next time stamp begins."""
        self.learn_times()
        offset = self.offset
        place = bisect.bisect_right(self.offsets, offset)
        end = self.offsets[place] if place < len(self.offsets) else offset + CHUNK_BYTES
        output = os.pread(self.output.fileno(), min(end - offset, CHUNK_BYTES), offset)
        if not output:
            return None
        self.offset += len(output)
        chunk = LogChunk(self.seconds[place - 1] if place else 0.0, output, self.place)
        if self.seconds:
            _share((self.inode, self._first, offset), chunk)
        return chunk

    def skip_until(self, since_s: float) -> None:
        self.learn_times()
        place = bisect.bisect_left(self.seconds, since_s)
        if place < len(self.offsets):
            self.offset = self.offsets[place]
        elif self.offsets:
            self.offset = self.size

    def learn_times(self) -> None:
        if self.times is None:
            return
        for line in self.times:
            offset, _, seconds = line.partition(b" ")
            if not line.endswith(b"\n"):
                self.times.seek(-len(line), os.SEEK_CUR)
                return
            self.offsets.append(int(offset))
            self.seconds.append(float(seconds))

    def close(self) -> None:
        self.output.close()
        if self.times is not None:
            self.times.close()


def _share(key: tuple[int, str, int], chunk: LogChunk) -> None:
    """Only followers at the end of a log or in step with others find a chunk again."""
    _shared[key] = chunk
    while len(_shared) > SHARED_CHUNKS:
        try:
            _shared.popitem(last=False)
        except KeyError:  # Another thread was faster.
            return


class _Watch:
    """Checks one log for all its followers. `version` grows when there may be new output."""

    def __init__(self, path: Path, has_ended: Callable[[], bool]) -> None:
        self.n_followers = 0
        self.version = 0
        self._path = path
        self._has_ended = has_ended
        self._changed = asyncio.Event()
        self._polling = asyncio.ensure_future(self._poll())

    async def wait(self, version: int) -> None:
        """Wait until the version is another one."""
        while self.version == version:
            await self._changed.wait()
            if self._polling.done():
                self._polling.result()

    def close(self) -> None:
        self._polling.cancel()

    async def _poll(self) -> None:
        known = None
        try:
            while True:
                found = (await LOGS.run(_state, self._path), self._has_ended())
                if found != known or found[1]:
                    known = found
                    self.version += 1
                    self._changed.set()
                    self._changed = asyncio.Event()
                await asyncio.sleep(POLL_S)
        finally:
            asyncio.get_running_loop().call_soon(self._changed.set)


_watches: dict[tuple[int, Path], _Watch] = {}
"""By event loop and path."""


@contextmanager
def _watching(path: Path, has_ended: Callable[[], bool]) -> Generator[_Watch]:
    key = (id(asyncio.get_running_loop()), path)
    watch = _watches.get(key)
    if watch is None:
        watch = _watches[key] = _Watch(path, has_ended)
    watch.n_followers += 1
    try:
        yield watch
    finally:
        watch.n_followers -= 1
        if not watch.n_followers:
            watch.close()
            del _watches[key]


async def read(
    path: Path, query: LogQuery, *, has_ended: Callable[[], bool]
) -> AsyncIterator[LogChunk]:
    """Yield the stored output, oldest first; with `follow`, also new output until the worker has
    ended."""
    parts = await LOGS.run(_open_at, path, query)
    try:
        if query.follow and parts:
            yield LogChunk(0.0, b"", _first_unread(parts).place)
        if not query.follow:
            async for chunk in _unread(path, parts):
                yield chunk
            return
        with _watching(path, has_ended) as watch:
            while True:
                # Check before reading, so that this pass reads all output from before the end.
                version, is_last = watch.version, has_ended()
                async for chunk in _unread(path, parts):
                    yield chunk
                if is_last:
                    return
                await watch.wait(version)
    finally:
        _close(parts)


async def _unread(path: Path, parts: list[_Part]) -> AsyncIterator[LogChunk]:
    """Yield what is not read yet. Afterwards only the newest file is open and in `parts`: a deleted
    file that stays open would keep its space on the disk."""
    while True:
        for part in list(parts):
            while chunk := part.read_shared() or await LOGS.run(part.read):
                yield chunk
            if part is not parts[-1]:
                parts.remove(part)
                part.close()
        newer = await LOGS.run(_open_newer, path, parts[-1] if parts else None)
        if not newer:
            return
        for part in parts:  # What was written before the rotation, after the read above.
            while chunk := await LOGS.run(part.read):
                yield chunk
        _close(parts)
        parts[:] = newer


def _close(parts: Iterable[_Part]) -> None:
    for part in parts:
        part.close()


def _open_at(path: Path, query: LogQuery) -> list[_Part]:
    """Open the files from the position on at which the reader starts."""
    opened = _open_all(path)
    parts = _behind(opened, query.place)
    _close(part for part in opened if part not in parts)
    _skip(parts, query)
    return parts


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size


def _open_all(path: Path) -> list[_Part]:
    numbered = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix[1:].isdecimal()]
    rotated = sorted(numbered, key=lambda each: int(each.suffix[1:]), reverse=True)
    found: dict[int, _Part] = {}
    for each in [*rotated, path]:
        part = _open(each)
        if part is not None and part.inode in found:
            part.close()  # Renamed while the files were opened.
        elif part is not None:
            found[part.inode] = part
    return list(found.values())


def _open_newer(path: Path, than: _Part | None) -> list[_Part]:
    """Open the files that rotations have created after `than`."""
    parts = _open_all(path) if than is None or _is_rotated(path, than) else []
    inodes = [part.inode for part in parts]
    if than is None or than.inode not in inodes:
        return parts
    first = inodes.index(than.inode) + 1
    _close(parts[:first])
    return parts[first:]


def _is_rotated(path: Path, part: _Part) -> bool:
    try:
        return path.stat().st_ino != part.inode
    except FileNotFoundError:
        return False


def _open(path: Path) -> _Part | None:
    try:
        output = path.open("rb")
    except FileNotFoundError:
        return None
    try:
        times = path.with_name(f"{path.name}.times").open("rb")
    except FileNotFoundError:
        times = None
    part = _Part(output, times, os.fstat(output.fileno()).st_ino)
    part.learn_times()
    return part


def _behind(parts: list[_Part], place: str) -> list[_Part]:
    """Return the parts after a position. If its file is already deleted, return all parts."""
    known = _PLACE.fullmatch(place)
    for number, part in enumerate(parts if known else []):
        if known and part.is_at(known["inode"], known["first"]):
            part.offset = int(known["offset"])
            return parts[number:]
    return parts


def _first_unread(parts: list[_Part]) -> _Part:
    return next((part for part in parts if part.offset < part.size), parts[-1])


def _skip(parts: list[_Part], query: LogQuery) -> None:
    if query.since_s:
        for part in parts:
            part.skip_until(query.since_s)
    if query.tail is not None:
        _skip_to_tail(parts, query.tail)
    if query.tail_bytes is not None:
        _skip_to_last_bytes(parts, query.tail_bytes)


def _skip_to_tail(parts: list[_Part], n_lines: int) -> None:
    """Seek in every part so that `n_lines` lines in total are left to read."""
    left = n_lines
    for part in reversed(parts):
        start, end = part.offset, part.size
        part.offset = end
        if left <= 0:
            continue
        part.offset, n_found = _line_start(part.output, left, start=start, end=end)
        left -= n_found


def _skip_to_last_bytes(parts: list[_Part], n_bytes: int) -> None:
    """Seek in every part so that at most `n_bytes` in total are left to read."""
    left = n_bytes
    for part in reversed(parts):
        start, end = part.offset, part.size
        part.offset = max(start, end - left)
        left -= end - part.offset


def _line_start(output: BinaryIO, n_lines: int, *, start: int, end: int) -> tuple[int, int]:
    """Return the offset of the last `n_lines` lines before `end`, and how many lines there are."""
    n_found, position = 0, end
    while position > start:
        block_start = max(start, position - TAIL_BLOCK_BYTES)
        output.seek(block_start)
        block = output.read(position - block_start)
        cut = len(block)
        while (cut := block.rfind(b"\n", 0, cut)) >= 0:
            # The newline at the very end does not begin another line.
            if block_start + cut + 1 < end:
                n_found += 1
                if n_found == n_lines:
                    return block_start + cut + 1, n_found
        position = block_start
    return start, n_found + (end > start)
