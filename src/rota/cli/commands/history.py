"""`rota history`: exports the jobs that have run as a trace of the simulator."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.command import CommandOption, command
from rota.cli.options import JSON
from rota.errors import UserError

if TYPE_CHECKING:
    from rota.wire.history import HistoryJob

HELP = "Export the jobs that have run, for 'rota simulate'."


@command(
    "export",
    CommandOption(
        "--since",
        name="since",
        metavar="TIME",
        text="Only jobs submitted in the last 30d, 12h (default: all).",
        parse=str,
        default="",
    ),
    JSON,
    epilog="Example: rota history export --since 30d > trace.csv",
)
def export(*, since: str, as_json: bool) -> None:
    """Print jobs that have run as a trace for 'rota simulate'.

    Prints your own ended and running jobs; administrators get the jobs of all users.
    """
    from rota.cli.output.console import print_err, print_json, print_out
    from rota.simulator.traces.history import fits_trace, trace_text

    jobs, n_left_out = _history(time.time() - _seconds(since) if since else 0.0)
    if as_json:
        print_json([asdict(each) for each in jobs])
        return
    fitting = [each for each in jobs if fits_trace(each)]
    print_out(trace_text(fitting))
    if n_left_out:
        print_err(f"left out jobs that have not run: {n_left_out}")
    if n_large := len(jobs) - len(fitting):
        print_err(f"left out jobs that are too large for a trace without speed-ups: {n_large}")


def _history(since_s: float) -> tuple[list[HistoryJob], int]:
    """All jobs that have run, and the number of those that have not."""
    from rota.client import Client

    with Client() as rota:
        page = rota.history(since_s=since_s)
        jobs, n_left_out = page.jobs, page.n_left_out
        while page.next is not None:
            page = rota.history(since_s=since_s, before=page.next)
            jobs, n_left_out = jobs + page.jobs, n_left_out + page.n_left_out
    return jobs, n_left_out


def _seconds(text: str) -> float:
    from rota.config.parsers import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise UserError(f"--since: {error}") from None


COMMANDS = (export,)
