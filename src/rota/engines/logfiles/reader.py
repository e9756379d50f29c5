"""Read a worker's log files, also while the writer appends to them and rotates them.

`writer.py` describes the files. A position in a log (`LogChunk.place`) is
`INODE-TIME-OFFSET`: the inode of the file, the time of its first line, and the offset in the file.
"""

from __future__ import annotations

import asyncio
import bisect
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rota.engines.interface import LogChunk, LogQuery

CHUNK_BYTES = 64 * 1024
POLL_S = 0.1
"""Interval at which a follower checks for new output."""
TAIL_BLOCK_BYTES = 64 * 1024
NO_LINE = "0.000"
"""Stands for the time of the first line if the file is empty."""
_PLACE = re.compile(
    r"(?P<inode>[0-9]{1,20})-(?P<first>[0-9.]{1,20})-(?P<offset>[0-9]{1,18})", re.ASCII
)


@dataclass(slots=True)
class _Part:
    """One file of the log. It stays open, so that a rotation (which renames it) does no harm."""

    output: BinaryIO
    times: BinaryIO | None
    offsets: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])

    @property
    def inode(self) -> int:
        return os.fstat(self.output.fileno()).st_ino

    @property
    def place(self) -> str:
        """The position of the next chunk. It holds the time of the first line besides the inode,
        because a new file can get the inode of a deleted one."""
        self._learn_times()
        return f"{self.inode}-{self._first}-{self.output.tell()}"

    def is_at(self, inode: str, first: str) -> bool:
        """Whether a position is in this file. The file may have been empty when it was taken."""
        self._learn_times()
        return inode == str(self.inode) and first in (self._first, NO_LINE)

    @property
    def is_read(self) -> bool:
        return self.output.tell() >= os.fstat(self.output.fileno()).st_size

    @property
    def _first(self) -> str:
        return f"{self.seconds[0]:.3f}" if self.seconds else NO_LINE

    def read(self) -> LogChunk | None:
        """Return the next chunk. It ends where the next time stamp begins."""
        self._learn_times()
        offset = self.output.tell()
        place = bisect.bisect_right(self.offsets, offset)
        end = self.offsets[place] if place < len(self.offsets) else offset + CHUNK_BYTES
        output = self.output.read(min(end - offset, CHUNK_BYTES))
        if not output:
            return None
        return LogChunk(self.seconds[place - 1] if place else 0.0, output, self.place)

    def skip_until(self, since_s: float) -> None:
        self._learn_times()
        place = bisect.bisect_left(self.seconds, since_s)
        if place < len(self.offsets):
            self.output.seek(self.offsets[place])
        elif self.offsets:
            self.output.seek(0, os.SEEK_END)

    def _learn_times(self) -> None:
        if self.times is None:
            return
        for line in self.times:
            offset, _, seconds = line.partition(b" ")
            if not line.endswith(b"\n"):
                self.times.seek(-len(line), os.SEEK_CUR)
                return
            self.offsets.append(int(offset))
            self.seconds.append(float(seconds))


async def read(
    path: Path, query: LogQuery, *, has_ended: Callable[[], bool]
) -> AsyncIterator[LogChunk]:
    """Yield the stored output, oldest first; with `follow`, also new output until the worker has
    ended."""
    with ExitStack() as stack:
        parts = _open_all(path, stack)
        parts = _behind(parts, query.place)
        _skip(parts, query)
        if query.follow and parts:
            yield LogChunk(0.0, b"", _first_unread(parts).place)
        while True:
            # Check before reading, so that this pass reads all output written before the end.
            is_last = not query.follow or has_ended()
            for part in parts:
                while chunk := part.read():
                    yield chunk
            newer = _open_newer(path, stack, than=parts[-1] if parts else None)
            parts = newer or parts[-1:]
            if newer:
                continue
            if is_last:
                return
            await asyncio.sleep(POLL_S)


def _open_all(path: Path, stack: ExitStack) -> list[_Part]:
    numbered = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix[1:].isdecimal()]
    rotated = sorted(numbered, key=lambda each: int(each.suffix[1:]), reverse=True)
    parts = [_open(each, stack) for each in [*rotated, path]]
    unique = {part.inode: part for part in parts if part is not None}
    return list(unique.values())


def _open_newer(path: Path, stack: ExitStack, *, than: _Part | None) -> list[_Part]:
    """Open the files that rotations have created after `than`."""
    parts = _open_all(path, stack) if than is None or _is_rotated(path, than) else []
    inodes = [part.inode for part in parts]
    if than is None or than.inode not in inodes:
        return parts
    return parts[inodes.index(than.inode) + 1 :]


def _is_rotated(path: Path, part: _Part) -> bool:
    try:
        return path.stat().st_ino != part.inode
    except FileNotFoundError:
        return False


def _open(path: Path, stack: ExitStack) -> _Part | None:
    try:
        output = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None
    try:
        times = stack.enter_context(path.with_name(f"{path.name}.times").open("rb"))
    except FileNotFoundError:
        times = None
    return _Part(output, times)


def _behind(parts: list[_Part], place: str) -> list[_Part]:
    """Return the parts after a position. If its file is already deleted, return all parts."""
    known = _PLACE.fullmatch(place)
    for number, part in enumerate(parts if known else []):
        if known and part.is_at(known["inode"], known["first"]):
            part.output.seek(int(known["offset"]))
            return parts[number:]
    return parts


def _first_unread(parts: list[_Part]) -> _Part:
    return next((part for part in parts if not part.is_read), parts[-1])


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
        start, end = part.output.tell(), part.output.seek(0, os.SEEK_END)
        if left <= 0:
            continue
        place, n_found = _line_start(part.output, left, start=start, end=end)
        part.output.seek(place)
        left -= n_found


def _skip_to_last_bytes(parts: list[_Part], n_bytes: int) -> None:
    """Seek in every part so that at most `n_bytes` in total are left to read."""
    left = n_bytes
    for part in reversed(parts):
        start, end = part.output.tell(), part.output.seek(0, os.SEEK_END)
        place = part.output.seek(max(start, end - left))
        left -= end - place


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
