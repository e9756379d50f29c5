"""Jobs as a table, or as JSON."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.output.json import say_json
from rota.cli.output.marks import progress, told
from rota.cli.output.table import Column, say_table
from rota.cli.output.times import clock_time, give_or_take, span

if TYPE_CHECKING:
    from rota.wire.jobs import JobView

LONGEST_REASON = 60
FAR_S = 100 * 365 * 86400.0
"""From here on it does not matter when."""
_PATH = re.compile(r"in PATH \([^)]*\)")


def say_jobs(jobs: Sequence[JobView], *, as_json: bool, title: str = "") -> None:
    if as_json:
        say_json([asdict(job) for job in jobs])
    else:
        say_table(columns(jobs, now=time.time()), title)


def columns(jobs: Sequence[JobView], *, now: float) -> list[Column]:
    def column(title: str, cell: Callable[[JobView], str], *, is_number: bool = False) -> Column:
        return Column(title, tuple(cell(job) for job in jobs), is_number=is_number)

    return [
        column("id", lambda job: job.id or "-"),
        column("name", lambda job: job.name),
        column("user", lambda job: job.user),
        column("state", lambda job: job.state),
        column("gpus", gpus, is_number=True),
        column("age", lambda job: span(now - job.submitted_s), is_number=True),
        column("ran", lambda job: span(job.running_s) if job.attempt else "-", is_number=True),
        *outlook(jobs, now=now),
        column("why", lambda job: short(job.reason)),
    ]


def outlook(jobs: Sequence[JobView], *, now: float) -> list[Column]:
    """How far jobs are and when they will be over; nothing where that is known of none."""
    columns: list[Column] = []
    if any(job.progress is not None for job in jobs):
        columns.append(Column("done", tuple(progress(job.progress) for job in jobs)))
    if any(job.finish_s is not None for job in jobs):
        columns.append(Column("left", tuple(span(job.remaining_s) for job in jobs)))
        ends = tuple(finish(job, now=now) for job in jobs)
        columns.append(Column("ends", ends, is_number=False))
    return columns


def finish(job: JobView, *, now: float) -> str:
    """`~14:05 ±6 min`."""
    if job.finish_s is None or job.remaining_s is None or job.remaining_s > FAR_S:
        return "-"
    return f"~{clock_time(job.finish_s, now, error_s=_error_s(job))} {_error(job)}"


def left(job: JobView) -> str:
    """`1h20m ±6 min`."""
    return f"{span(job.remaining_s)} {_error(job)}"


def _error(job: JobView) -> str:
    return told(f"±{give_or_take(_error_s(job))}")


def _error_s(job: JobView) -> float:
    return (job.remaining_s or 0.0) * (job.finish_error or 0.0)


def gpus(job: JobView) -> str:
    """What it holds of what it asked for."""
    return f"{job.gpus_held:g} of {job.gpus}" if job.gpus_held else job.gpus


def brief(reason: str) -> str:
    """For tables: without the whole search path, which 'rota show' tells."""
    return _PATH.sub("in PATH", reason)


def short(reason: str) -> str:
    """Cut for a terminal only: what is piped is whole."""
    text = brief(reason)
    if len(text) <= LONGEST_REASON or not sys.stdout.isatty():
        return text
    return f"{text[: LONGEST_REASON - 1]}…"
