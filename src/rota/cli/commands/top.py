"""`rota top`: shows nodes, GPUs and running jobs, and keeps the view up to date."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rota.cli.command import command, flag
from rota.cli.options import JSON
from rota.cli.output.console import print_out

if TYPE_CHECKING:
    from rota.cli.output.top import ClusterOverview
    from rota.client import Client

MAX_JOBS = 1000
STATES_WITH_GPUS = ("starting", "running", "stopping")


@command(
    "top",
    flag("--once", name="is_once", text="Print once and exit (default if stdout is a pipe)."),
    JSON,
)
def top(*, is_once: bool, as_json: bool) -> None:
    """Watch nodes, their GPUs and the jobs on them. Ctrl-C ends the view."""
    from rota.cli.output.console import print_json
    from rota.cli.output.live import live
    from rota.cli.output.top import as_dict, draw
    from rota.client import Client

    with Client() as rota:
        if as_json:
            print_json(as_dict(_overview(rota)))
        elif is_once or not sys.stdout.isatty():
            print_out("\n".join(draw(_overview(rota), now=time.time())))
        else:
            live(lambda: draw(_overview(rota), now=time.time()))


def _overview(rota: Client) -> ClusterOverview:
    from rota.cli.output.top import ClusterOverview

    jobs = rota.jobs(states=STATES_WITH_GPUS, limit=MAX_JOBS).jobs
    return ClusterOverview(rota.status(), rota.nodes(), jobs)


COMMANDS = (top,)
