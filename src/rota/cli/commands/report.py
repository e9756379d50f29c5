"""`rota report`: one file with all that an administrator asks for."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.flags import option
from rota.cli.options import JobWord
from rota.cli.output.lines import say
from rota.errors import RotaError, UserError

if TYPE_CHECKING:
    from rota.cli.output.report import Log, Report
    from rota.client import Client
    from rota.wire.jobs import JobDetails, LogRange

app = typer.Typer()

LINES = 200
MOST_BYTES = 64 * 1024
"""Of one worker's output: its end."""


@app.command()
def report(
    job: JobWord,
    *,
    output: Annotated[
        str, option("--output", "-o", metavar="FILE", words="Else rota-report-ID.md; - is stdout.")
    ] = "",
) -> None:
    """Write a file about a job, for whoever is to help you.

    It has the job's file, story and reasons, the end of the output of every attempt and worker,
    versions and machines. Secrets are removed as far as they can be told: look it through before
    you pass it on.
    """
    from rota.cli.output.report import text_of
    from rota.client import Client

    with Client() as rota:
        gathered = _gather(rota, job)
    text = text_of(gathered)
    if output == "-":
        say(text)
        return
    path = Path(output or f"rota-report-{gathered.details.job.id}.md")
    _write(path, text)
    say(f"{path}: look it through before you pass it on")


def _gather(rota: Client, job: str) -> Report:
    from rota import __version__
    from rota.cli.output.report import Report

    details = rota.show(job)
    return Report(
        details=details,
        story=rota.story(details.job.id),
        logs=_logs(rota, details),
        status=rota.status(),
        nodes=rota.nodes(),
        made_s=time.time(),
        versions={
            "rota": __version__,
            "python": platform.python_version(),
            "kernel": f"{platform.system()} {platform.release()}",
        },
    )


def _logs(rota: Client, details: JobDetails) -> list[Log]:
    from rota.cli.output.report import Log
    from rota.wire.jobs import LogRange

    found: list[Log] = []
    for attempt in details.attempts:
        for worker in attempt.workers:
            wanted = LogRange(worker=worker.worker, attempt=attempt.attempt, tail=LINES)
            text = _tail(rota, details.job.id, wanted=wanted)
            found.append(Log(attempt.attempt, worker.worker, text))
    return found


def _tail(rota: Client, job_id: str, *, wanted: LogRange) -> str:
    """What cannot be had is said in its place: the rest of the report is worth having."""
    try:
        return end_of(rota.log_bytes(job_id, wanted)).decode(errors="replace")
    except RotaError as error:
        return f"(it cannot be read: {error})"


def end_of(chunks: Iterable[bytes], most: int = MOST_BYTES) -> bytes:
    """The last so many bytes, from the beginning of a line, or at least of a word: half a secret
    would not be known as one."""
    kept, is_cut = b"", False
    for chunk in chunks:
        kept += chunk
        if len(kept) > most:
            kept, is_cut = kept[-most:], True
    if not is_cut:
        return kept
    line = kept.partition(b"\n")[2]
    return line or b"".join(kept.split(maxsplit=1)[1:])


def _write(path: Path, text: str) -> None:
    """For its owner's eyes, and never over something that is there."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{path} is there already", "name another file by --output") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
