"""Collects a support bundle: what others need to help with a job."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rota.errors import RotaError, UserError

if TYPE_CHECKING:
    from rota.cli.output.report import LogTail, SupportBundle
    from rota.client import Client
    from rota.wire.jobs import JobDetails, LogRange

TAIL_LINES = 200
TAIL_BYTES = 64 * 1024
"""Limits for the output of one worker."""


def collect(rota: Client, job: str) -> SupportBundle:
    from rota import __version__
    from rota.cli.output.report import SupportBundle

    details = rota.show(job)
    return SupportBundle(
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


def _logs(rota: Client, details: JobDetails) -> list[LogTail]:
    from rota.cli.output.report import LogTail
    from rota.wire.jobs import LogRange

    found: list[LogTail] = []
    for attempt in details.attempts:
        for worker in attempt.workers:
            wanted = LogRange(worker=worker.worker, attempt=attempt.attempt, tail=TAIL_LINES)
            text = _tail(rota, details.job.id, wanted=wanted)
            found.append(LogTail(attempt.attempt, worker.worker, text))
    return found


def _tail(rota: Client, job_id: str, *, wanted: LogRange) -> str:
    """The last lines of a worker's output. An error becomes text of the bundle, so that the rest
    of the bundle is still written."""
    try:
        return last_bytes(rota.log_bytes(job_id, wanted)).decode(errors="replace")
    except RotaError as error:
        return f"(cannot read the output: {error})"


def last_bytes(chunks: Iterable[bytes], most: int = TAIL_BYTES) -> bytes:
    """At most the last `most` bytes, from the start of a line or at least of a word.

    A secret that is cut in half would not be recognised and removed.
    """
    kept, is_cut = b"", False
    for chunk in chunks:
        kept += chunk
        if len(kept) > most:
            kept, is_cut = kept[-most:], True
    if not is_cut:
        return kept
    line = kept.partition(b"\n")[2]
    return line or b"".join(kept.split(maxsplit=1)[1:])


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{path} already exists", "choose another file with --output") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
