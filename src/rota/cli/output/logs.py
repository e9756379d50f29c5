"""Prints the output of a job: raw, or as whole lines with the worker, the time or a filter."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.cli.escapes import EscapeFilter, neutralise
from rota.cli.output.console import print_err
from rota.cli.output.table import PLAIN, is_coloured

if TYPE_CHECKING:
    from rota.wire.jobs import LogPiece

COLOURS = ("\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m", "\x1b[34m", "\x1b[31m")
"""One colour per worker, in turn."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How lines are printed. Without times, workers and pattern, output is copied as it is, or
    `is_neutralised` for a terminal."""

    has_times: bool = False
    has_workers: bool = False
    pattern: re.Pattern[str] | None = None
    is_neutralised: bool = False

    @property
    def is_copied(self) -> bool:
        return not (self.has_times or self.has_workers or self.pattern)


def print_pieces(pieces: Iterable[LogPiece], style: LineFormat) -> None:
    """Print pieces in which each byte is one character (`LogRange.exact`). A mark on stderr says
    when the output of another attempt begins."""
    attempt = 0
    begun: dict[int, list[str]] = {}
    copies: dict[int, EscapeFilter] = {}
    for piece in pieces:
        if piece.attempt != attempt:
            _print_rest(begun, style)
            _finish(copies)
            if attempt:
                print_err(f"attempt {piece.attempt} begins")
            attempt = piece.attempt
        if style.is_copied:
            chunk = piece.text.encode("latin-1")
            if style.is_neutralised:
                copy = copies.setdefault(piece.worker, EscapeFilter())
                chunk = copy.feed(chunk).encode()
            write(chunk)
            continue
        *whole, rest = piece.text.split("\n")
        for line in whole:
            _print_line("".join([*begun.pop(piece.worker, []), line]), piece, style=style)
        if rest:
            begun.setdefault(piece.worker, []).append(rest)
    _print_rest(begun, style)
    _finish(copies)


def _finish(copies: dict[int, EscapeFilter]) -> None:
    for copy in copies.values():
        write(copy.finish().encode())
    copies.clear()


def write(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _print_rest(begun: dict[int, list[str]], style: LineFormat) -> None:
    """The last line of a worker may have no end."""
    for worker, parts in begun.items():
        _print_line("".join(parts), None, style=style, worker=worker)
    begun.clear()


def _print_line(line: str, piece: LogPiece | None, *, style: LineFormat, worker: int = 0) -> None:
    number = worker if piece is None else piece.worker
    text = line.encode("latin-1").decode(errors="replace")
    if style.pattern is not None and not style.pattern.search(text):
        return
    time_text = _time(piece.at_s) if piece is not None else " " * 23
    parts = [
        time_text if style.has_times else "",
        _worker(number) if style.has_workers else "",
        neutralise(text) if style.is_neutralised else text,
    ]
    write(f"{' '.join(each for each in parts if each)}\n".encode())


def _worker(number: int) -> str:
    name = f"[{number}]"
    return f"{COLOURS[number % len(COLOURS)]}{name}{PLAIN}" if is_coloured() else name


def _time(at_s: float) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
    return f"{moment}.{int(at_s * 1000) % 1000:03}"
