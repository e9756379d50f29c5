"""A table that stays up to date until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.cli.output.jobs import columns, say_jobs
from rota.cli.output.table import draw

if TYPE_CHECKING:
    from rota.client import Client
    from rota.wire.jobs import JobView

REFRESH_S = 0.5


def live_table(rota: Client, fetch: Callable[[], list[JobView]]) -> None:
    """On a terminal the table is drawn over itself; a pipe gets it again when it changed."""
    if not sys.stdout.isatty():
        for _ in rota.events(after=None):
            say_jobs(fetch(), as_json=False)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            jobs = fetch()[: max(1, console.height - 4)]
            live.update(draw(columns(jobs, now=time.time())), refresh=True)
            time.sleep(REFRESH_S)
