"""`rota top`: who uses which GPU, now."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.options import AsJson
from rota.cli.output.lines import say

if TYPE_CHECKING:
    from rota.cli.output.top import Box
    from rota.client import Client

app = typer.Typer()

MOST_JOBS = 1000
ON_GPUS = ("starting", "running", "stopping")


@app.command()
def top(
    *,
    is_once: Annotated[
        bool, typer.Option("--once", help="Show it once; so is what is piped.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch the machines, their GPUs, and the jobs on them. Ctrl-C ends it."""
    from rota.cli.output.json import say_json
    from rota.cli.output.live import live
    from rota.cli.output.top import as_dict, draw
    from rota.client import Client

    with Client() as rota:
        if as_json:
            say_json(as_dict(_look(rota)))
        elif is_once or not sys.stdout.isatty():
            say("\n".join(draw(_look(rota), now=time.time())))
        else:
            live(lambda: draw(_look(rota), now=time.time()))


def _look(rota: Client) -> Box:
    from rota.cli.output.top import Box

    jobs = rota.jobs(states=ON_GPUS, limit=MOST_JOBS).jobs
    return Box(rota.status(), rota.nodes(), jobs)
