"""Jobs as a table, or as JSON."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.output.json import say_json
from rota.cli.output.table import Column, say_table
from rota.cli.output.times import span

if TYPE_CHECKING:
    from rota.wire.jobs import JobView

LONGEST_REASON = 60
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
        column("why", lambda job: short(job.reason)),
    ]


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
