"""Parse a log stream of the API server, with a timestamp before each line, into a log file.

A broken stream resumes at the second of the last line, and lines that were written already are
skipped. The position is saved on disk, so that the next daemon continues there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rota.engines.logfiles.writer import TIME_STEP_S, LogFile

MAX_LINE_BYTES = 64 * 1024
MAX_TIMESTAMP_BYTES = 64


@dataclass(slots=True)
class ResumePoint:
    """The timestamp of the newest written line, how many written lines have this timestamp, and
    how many bytes were written of one more line that has not ended."""

    path: Path
    moment: bytes = b""
    n_lines: int = 0
    n_bytes: int = 0

    @classmethod
    def of(cls, path: Path) -> ResumePoint:
        try:
            moment, n_lines, *n_bytes = path.read_bytes().split()
            return cls(path, moment, int(n_lines), *map(int, n_bytes[:1]))
        except (FileNotFoundError, ValueError):
            return cls(path)

    def save(self) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # All timestamps have the same length, so a new record overwrites the old one.
            os.pwrite(fd, b"%s %-9d %-15d\n" % (self.moment, self.n_lines, self.n_bytes), 0)
        finally:
            os.close(fd)


class LogStreamParser:
    def __init__(self, log: LogFile, resume: ResumePoint) -> None:
        self._log, self._resume = log, resume
        self._rest = b""
        self._known = replace(resume)
        """The resume point at the start of this stream; repeated output is subtracted from it."""
        self.n_new_bytes = 0
        """How many bytes were written so far."""
        self.node_message = b""
        """A line without a timestamp: an error message of the node instead of output."""

    @property
    def since(self) -> str:
        return self._resume.moment.decode()

    def take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._write([line + b"\n" for line in lines])
        if len(self._rest) > MAX_LINE_BYTES:
            # A progress bar may never end its line; the rest gets the same timestamp.
            moment, _, _ = self._rest.partition(b" ")
            self._write([self._rest])
            self._rest = moment[:MAX_TIMESTAMP_BYTES] + b" "

    def finish(self, *, is_whole: bool) -> None:
        """The stream has ended. The rest is a last line without a newline; if the stream broke,
        the next stream repeats this line."""
        rest, self._rest = self._rest, b""
        if rest and is_whole:
            self._write([rest])
        self._known = replace(self._resume)

    def _write(self, lines: list[bytes]) -> None:
        """Writes lines with close timestamps together."""
        batch: list[bytes] = []
        batch_s = 0.0
        for line in lines:
            moment, _, output = line.partition(b" ")
            at_s = timestamp_s(moment)
            if not at_s:
                self.node_message = line
                continue
            new = self._unwritten(moment, output)
            if not new:
                continue
            self._count(moment, new)
            if batch and at_s - batch_s >= TIME_STEP_S:
                self._log.write(b"".join(batch), batch_s)
                batch = []
            batch_s = batch_s if batch else at_s
            batch.append(new)
        if batch:
            self._log.write(b"".join(batch), batch_s)
            self._resume.save()

    def _unwritten(self, moment: bytes, output: bytes) -> bytes:
        """The part of a line that was not written yet."""
        known = self._known
        if moment > known.moment:
            return output
        if moment < known.moment:
            return b""
        if known.n_lines:
            known.n_lines -= output.endswith(b"\n")
            return b""
        new = output[known.n_bytes :]
        known.n_bytes -= len(output) - len(new)
        return new

    def _count(self, moment: bytes, output: bytes) -> None:
        resume = self._resume
        self.n_new_bytes += len(output)
        if moment != resume.moment:
            resume.moment, resume.n_lines, resume.n_bytes = moment, 0, 0
        if output.endswith(b"\n"):
            resume.n_lines, resume.n_bytes = resume.n_lines + 1, 0
        else:
            resume.n_bytes += len(output)


def timestamp_s(moment: bytes) -> float:
    """`2026-11-16T08:21:08.123456789Z` as Unix time; 0 if the text is not a timestamp."""
    text = moment.decode(errors="replace")
    head, point, tail = text.partition(".")
    zone = tail.lstrip("0123456789") if point else ""
    fraction = tail[: len(tail) - len(zone)][:6]
    try:
        return datetime.fromisoformat(f"{head}.{fraction}{zone}" if point else text).timestamp()
    except ValueError:
        return 0.0
