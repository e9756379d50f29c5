"""`rota logs` and `rota report`: the output of a job, and a support bundle with it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.command import CommandOption, command, flag, whole
from rota.cli.options import JOB, JSON
from rota.cli.output.console import print_err, print_json_line, print_out
from rota.errors import UserError, shown

if TYPE_CHECKING:
    from rota.client import Client
    from rota.wire.jobs import JobDetails, LogPiece, LogRange

ALL = "all"
WAITING = ("queued", "held")


@dataclass(frozen=True, slots=True)
class LogFlags:
    """The flags that select and print output. `attempt` is a number, `all` or empty."""

    wanted: LogRange
    attempt: str
    grep: re.Pattern[str] | None
    has_times: bool
    as_json: bool


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
        text="Only output of the last 90s, 15m, 1:30 (H:MM).",
        parse=str,
    ),
    CommandOption(
        "--grep",
        name="grep",
        metavar="PATTERN",
        text="Only lines that match this regular expression.",
        parse=str,
    ),
    flag("--timestamps", "-t", name="timestamps", text="Print the time before each line."),
    CommandOption("--worker", name="worker", metavar="N", text="Only this worker.", parse=whole),
    CommandOption(
        "--attempt",
        name="attempt",
        metavar="N|all",
        text="Number of the attempt, or all (default: the newest).",
        parse=str,
        default="",
    ),
    JSON,
)
def logs(
    *,
    job: str,
    follow: bool,
    tail: int | None,
    since: str | None,
    grep: str | None,
    timestamps: bool,
    worker: int | None,
    attempt: str,
    as_json: bool,
) -> None:
    """Show the output of a job. Lines of all workers are merged by time; if there are several, each
    line begins with the number of its worker."""
    from rota.client import Client
    from rota.wire.jobs import LogRange

    since_s = time.time() - _seconds(since) if since else 0.0
    number = int(attempt) if attempt.isascii() and attempt.isdigit() else None
    if attempt not in ("", ALL) and not number:
        raise UserError(f"--attempt {shown(attempt)} is not an attempt", "write 1, 2, ... or all")
    if timestamps and as_json:
        raise UserError("--json already includes times", "leave out --timestamps")
    if tail is not None and tail < 0:
        raise UserError(f"--tail {tail} is less than 0", "give a number of lines")
    wanted = LogRange(worker, number, tail, since_s, follow)
    flags = LogFlags(wanted, attempt, _pattern(grep), timestamps, as_json)
    with Client() as rota:
        print_logs(rota, rota.show(job), flags=flags)


@command(
    "report",
    JOB,
    CommandOption(
        "--output",
        "-o",
        name="output",
        metavar="FILE",
        text="Output file, - for stdout (default: rota-report-ID.md).",
        parse=str,
    ),
)
def report(*, job: str, output: str | None) -> None:
    """Write a support bundle for a job (logs, history, job file).

    The bundle holds the job file, the history, the last output of every worker of every attempt,
    versions and nodes. Known kinds of secrets are removed. Read the file before you share it.
    """
    from rota.cli.output.report import render
    from rota.cli.support_bundle import collect, write_private
    from rota.client import Client

    with Client() as rota:
        bundle = collect(rota, job)
    text = render(bundle)
    if output == "-":
        print_out(text)
        return
    path = Path(output or f"rota-report-{bundle.details.job.id}.md")
    write_private(path, text)
    print_out(f"wrote {path}; read it before you share it")


def follow_logs(rota: Client, job_id: str, *, as_json: bool) -> None:
    """Print the output of a job until its end, from its first attempt on."""
    from rota.wire.jobs import LogRange

    flags = LogFlags(LogRange(follow=True), "", grep=None, has_times=False, as_json=as_json)
    print_logs(rota, rota.show(job_id), flags=flags)


def print_logs(rota: Client, details: JobDetails, *, flags: LogFlags) -> None:
    from rota.cli.output.logs import LineFormat, print_pieces

    job, wanted = details.job, flags.wanted
    if wanted.follow and job.state in WAITING:
        reason = f": {job.reason}" if job.reason else ""
        print_err(f"job {job.id} is {job.state}{reason}; waiting for its start")
    elif not job.attempt:
        reason = f": {job.reason}" if job.reason else ""
        print_err(f"job {job.id} is {job.state}{reason}; it has no output")
    elif not flags.attempt and job.attempt > 1:
        hint = "--attempt all shows all attempts"
        print_err(f"showing attempt {job.attempt} of {job.attempt}; {hint}")
    if flags.as_json:
        for piece in _matching(_pieces(rota, details, flags=flags), flags.grep):
            print_json_line({"type": "log", **asdict(piece)})
        if wanted.follow:
            from rota.cli.output.jobs import job_object

            print_json_line({"type": "job", **job_object(rota.wait(job.id))})
        return
    n_workers = max((len(each.workers) for each in details.attempts), default=1)
    has_workers = wanted.worker is None and n_workers > 1
    style = LineFormat(flags.has_times, has_workers, flags.grep)
    exact = replace(flags, wanted=replace(wanted, exact=True))
    print_pieces(_pieces(rota, details, flags=exact), style)


def _pieces(rota: Client, details: JobDetails, *, flags: LogFlags) -> Iterator[LogPiece]:
    """The output of the chosen attempts. With `follow`, the newest attempt comes last."""
    job, wanted = details.job, flags.wanted
    earlier = range(1, job.attempt) if flags.attempt == ALL else ()
    for number in earlier:
        yield from rota.log_pieces(job.id, replace(wanted, attempt=number, follow=False))
    yield from rota.log_pieces(job.id, wanted)


def _matching(pieces: Iterable[LogPiece], pattern: re.Pattern[str] | None) -> Iterator[LogPiece]:
    """Without the lines that do not match. A piece is filtered by itself: it mostly ends with a
    line."""
    for piece in pieces:
        if pattern is None:
            yield piece
            continue
        lines = [line for line in piece.text.splitlines(keepends=True) if pattern.search(line)]
        if lines:
            yield replace(piece, text="".join(lines))


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        what = f"--grep '{shown(text)}' is not a regular expression: {error}"
        raise UserError(what, "put a backslash before signs such as ( and [") from None


def _seconds(text: str) -> float:
    from rota.config.parsers import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise UserError(f"--since: {error}") from None


COMMANDS = (logs, report)
