"""Lines of a pod's output as the API server gives them, each with its moment before it, into a
log file that has just what the program wrote.

A stream that breaks is taken up at the second of the last line: what was written already is left
out. Where that was is on the disk, so that the next daemon goes on there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rota.engines.logfiles.writing import TIME_STEP_S, LogFile

LONGEST_LINE = 64 * 1024
LONGEST_MOMENT = 64


@dataclass(slots=True)
class Resume:
    """The moment of the newest line that was written, how many lines have this moment, and how much
    was written of one more that has not ended."""

    path: Path
    moment: bytes = b""
    n_lines: int = 0
    n_bytes: int = 0

    @classmethod
    def of(cls, path: Path) -> Resume:
        try:
            moment, n_lines, *n_bytes = path.read_bytes().split()
            return cls(path, moment, int(n_lines), *map(int, n_bytes[:1]))
        except (FileNotFoundError, ValueError):
            return cls(path)

    def save(self) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Moments are all of one length: an older line is covered by a newer one.
            os.pwrite(fd, b"%s %-9d %-15d\n" % (self.moment, self.n_lines, self.n_bytes), 0)
        finally:
            os.close(fd)


class Splitter:
    def __init__(self, log: LogFile, resume: Resume) -> None:
        self._log, self._resume = log, resume
        self._rest = b""
        self._known = replace(resume)
        """As it was when this stream began. What of it comes again is taken off it."""
        self.n_new_bytes = 0
        """What was written here so far."""
        self.complaint = b""
        """What was said without a moment: by the node, in place of what the program wrote."""

    @property
    def since(self) -> str:
        return self._resume.moment.decode()

    def take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._write([line + b"\n" for line in lines])
        if len(self._rest) > LONGEST_LINE:
            # A progress bar may never end its line: what follows is of the same moment.
            moment, _, _ = self._rest.partition(b" ")
            self._write([self._rest])
            self._rest = moment[:LONGEST_MOMENT] + b" "

    def finish(self, *, is_whole: bool) -> None:
        """The stream is over. What is left is a last line without an end; where the stream broke,
        it is a part of one that the next stream brings again."""
        rest, self._rest = self._rest, b""
        if rest and is_whole:
            self._write([rest])
        self._known = replace(self._resume)

    def _write(self, lines: list[bytes]) -> None:
        """What came close together goes into the file together."""
        batch: list[bytes] = []
        batch_s = 0.0
        for line in lines:
            moment, _, output = line.partition(b" ")
            at_s = seconds(moment)
            if not at_s:
                self.complaint = line
                continue
            new = self._unknown(moment, output)
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

    def _unknown(self, moment: bytes, output: bytes) -> bytes:
        """What of a line, or of a piece of a long one, was not written yet."""
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


def seconds(moment: bytes) -> float:
    """`2026-11-16T08:21:08.123456789Z`; 0 for what is no moment."""
    text = moment.decode(errors="replace")
    head, point, tail = text.partition(".")
    zone = tail.lstrip("0123456789") if point else ""
    fraction = tail[: len(tail) - len(zone)][:6]
    try:
        return datetime.fromisoformat(f"{head}.{fraction}{zone}" if point else text).timestamp()
    except ValueError:
        return 0.0
