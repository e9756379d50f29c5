"""The daemon from outside: status, down, nodes."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import completing
from rota.cli.options import AsJson
from rota.cli.output.lines import say

if TYPE_CHECKING:
    from rota.client import Client
    from rota.wire.box import NodeView, Status

app = typer.Typer()
nodes_app = typer.Typer(help="Show machines and their GPUs; drain and resume machines.")

PAUSE_S = 0.05
END_S = 10.0
"""A daemon that does not answer any more has little left to do."""

Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="As in 'rota nodes list'.",
        show_default=False,
        autocompletion=completing.nodes,
    ),
]


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Say whether the daemon is up, and what it does. Exit code 1 if it is not."""
    from rota.cli.output.json import say_json
    from rota.client import Client

    with Client() as rota:
        found = rota.status()
    if as_json:
        say_json(asdict(found))
    else:
        _say_status(found)


@app.command()
def down(
    *,
    keeps_jobs: Annotated[
        bool, typer.Option("--keep-jobs/--stop-jobs", help="Let what runs run on; the default.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """End the daemon. Jobs run on and are found again by the next one, unless they are to stop:
    then they go back into the queue."""
    from rota.cli.output.json import say_json
    from rota.client import Client

    with Client() as rota:
        pid = rota.status().pid
        rota.stop(stop_jobs=not keeps_jobs)
        _wait_for_silence(rota, pid)
        if rota.door.socket:
            _wait_for_end(pid)
    if as_json:
        say_json({"pid": pid})
    else:
        say(f"rota is down (process {pid})")


def _wait_for_silence(rota: Client, pid: int) -> None:
    """Until nobody answers, or another daemon does: a supervisor may start it again at once."""
    from rota.client.find import NoDaemonError
    from rota.errors import UnavailableError

    while True:
        try:
            if rota.status().pid != pid:
                return
        except NoDaemonError:
            return
        except UnavailableError:
            # It went while it was asked.
            pass
        time.sleep(PAUSE_S)


def _wait_for_end(pid: int) -> None:
    """The last thing that a daemon lets go of is its folder, which the next one needs."""
    import os
    import select

    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    with os.fdopen(pidfd):
        select.select([pidfd], [], [], END_S)


def _say_status(found: Status) -> None:
    from rota.cli.output.times import span

    jobs = ", ".join(f"{count} {state}" for state, count in sorted(found.jobs.items()))
    rows = [
        ("process", f"{found.pid}, for {span(time.time() - found.started_s)}"),
        ("version", found.version),
        ("engine", found.engine),
        ("socket", found.socket),
        ("address", found.address),
        ("policy", found.policy),
        ("GPUs", f"{found.gpus_held:g} of {found.gpus} held"),
        ("jobs", jobs or "none"),
        ("trouble", found.trouble),
    ]
    say("\n".join(f"{name:<8} {value}" for name, value in rows if value))


@nodes_app.command(name="list")
def list_nodes(*, as_json: AsJson = False) -> None:
    """Show the machines, their GPUs, and whose jobs hold them."""
    from rota.client import Client

    with Client() as rota:
        _say_nodes(rota.nodes(), as_json=as_json)


@nodes_app.command()
def drain(node: Node, *, as_json: AsJson = False) -> None:
    """Give a machine no new work; what runs there moves off."""
    from rota.client import Client

    with Client() as rota:
        _say_nodes(rota.drain(node), as_json=as_json)


@nodes_app.command()
def resume(node: Node, *, as_json: AsJson = False) -> None:
    """Let a drained machine work again."""
    from rota.client import Client

    with Client() as rota:
        _say_nodes(rota.resume(node), as_json=as_json)


@nodes_app.command()
def lost(node: Node, *, as_json: AsJson = False) -> None:
    """Say that a silent machine is gone; what ran there starts anew."""
    from rota.client import Client

    with Client() as rota:
        _say_nodes(rota.lose(node), as_json=as_json)


def _say_nodes(nodes: list[NodeView], *, as_json: bool) -> None:
    from rota.cli.output.json import say_json
    from rota.cli.output.nodes import say_nodes

    if as_json:
        say_json([asdict(node) for node in nodes])
    else:
        say_nodes(nodes)
