"""`rota logs`: shows the output of a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.command import CommandOption, command, flag, whole
from rota.cli.options import JOB, JSON
from rota.cli.output.console import print_out
from rota.errors import UserError

if TYPE_CHECKING:
    from rota.wire.jobs import LogPiece


@command(
    "logs",
    JOB,
    flag("--follow", "-f", name="follow", text="Print new output until the job has ended."),
    CommandOption(
        "--tail", "-n", name="tail", metavar="N", text="Only the last N lines.", parse=whole
    ),
    CommandOption(
        "--since",
        name="since",
        metavar="TIME",
        text="Only output of the last 90s, 15m, 2h.",
        parse=str,
    ),
    flag("--timestamps", "-t", name="timestamps", text="Print time and worker before each line."),
    CommandOption("--worker", name="worker", metavar="N", text="Only this worker.", parse=whole),
    CommandOption(
        "--attempt",
        name="attempt",
        metavar="N",
        text="Number of the attempt (default: the newest).",
        parse=whole,
    ),
    JSON,
)
def logs(
    *,
    job: str,
    follow: bool,
    tail: int | None,
    since: str | None,
    timestamps: bool,
    worker: int | None,
    attempt: int | None,
    as_json: bool,
) -> None:
    """Show the output of a job. Lines of all workers are merged by time."""
    from rota.client import Client
    from rota.wire.jobs import LogRange

    since_s = time.time() - _seconds(since) if since else 0.0
    wanted = LogRange(worker, attempt, tail, since_s, follow)
    if timestamps and as_json:
        raise UserError("--json already includes times", "leave out --timestamps")
    if tail is not None and tail < 0:
        raise UserError(f"--tail {tail} is less than 0", "give a number of lines")
    with Client() as rota:
        if as_json:
            _copy_pieces(rota.log_pieces(job, wanted))
        elif timestamps:
            _copy_lines(rota.log_pieces(job, wanted))
        else:
            copy(rota.log_bytes(job, wanted))


def copy(chunks: Iterable[bytes]) -> None:
    """Copy bytes to stdout as they arrive."""
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _copy_pieces(pieces: Iterable[LogPiece]) -> None:
    """One JSON object per line, because followed output has no end."""
    import json

    for piece in pieces:
        print_out(json.dumps(asdict(piece)))


def _copy_lines(pieces: Iterable[LogPiece]) -> None:
    """Print whole lines. A piece of output may end in the middle of a line."""
    begun: dict[tuple[int, int], list[str]] = {}
    for piece in pieces:
        key = (piece.attempt, piece.worker)
        *whole, rest = piece.text.split("\n")
        for line in whole:
            print_out(f"{_prefix(piece)} {''.join(begun.pop(key, []))}{line}")
        if rest:
            begun.setdefault(key, []).append(rest)
    for (attempt, worker), parts in begun.items():
        print_out(f"{'':23} {attempt}/{worker} {''.join(parts)}")


def _prefix(piece: LogPiece) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(piece.at_s))
    return f"{moment}.{int(piece.at_s * 1000) % 1000:03} {piece.attempt}/{piece.worker}"


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        return float(number) * units[unit]
    except ValueError:
        raise UserError(f"--since {text[:40]} is not a duration", "write 90s, 15m or 2h") from None


COMMANDS = (logs,)
