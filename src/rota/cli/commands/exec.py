"""`rota exec`, `rota shell` and `rota port-forward`: reach into a job that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.flags import option
from rota.cli.options import JobWord
from rota.cli.output.lines import complain, say

if TYPE_CHECKING:
    from rota.client.forward import Forwarder
    from rota.wire.sessions import Entry

app = typer.Typer()

Worker = Annotated[
    int | None, option("--worker", metavar="N", words="Beside this one, else the first.")
]


@app.command(name="exec", epilog="Example: rota exec bert -- nvidia-smi")
def execute(
    job: JobWord,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.", show_default=False)
    ],
    *,
    worker: Worker = None,
    on_terminal: Annotated[
        bool, typer.Option("--tty", "-t", help="On a terminal, as a shell would be.")
    ] = False,
) -> None:
    """Run a command beside a worker. It has the worker's user, folder, environment, container and
    GPUs. The exit code is the command's."""
    raise typer.Exit(_enter(job, _entry(command, on_terminal=on_terminal), worker=worker))


@app.command()
def shell(job: JobWord, *, worker: Worker = None) -> None:
    """Open a shell beside a worker. It has the worker's user, folder, environment, container and
    GPUs."""
    raise typer.Exit(_enter(job, _entry([], on_terminal=True), worker=worker))


@app.command(name="port-forward", epilog="Example: rota port-forward bert 6006:6006")
def port_forward(
    job: JobWord,
    ports: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST:JOB...",
            help="A port here and one there; else the job's own --port.",
            show_default=False,
        ),
    ] = None,
    *,
    worker: Worker = None,
) -> None:
    """Let ports here lead to ports of a job. Until it is over, or Ctrl-C."""
    from rota.client import Client
    from rota.client.forward import Target
    from rota.errors import UserError

    with Client() as rota:
        details = rota.show(job)
        wanted = ports or details.request.ports
        if not wanted:
            raise UserError(
                f"job {details.job.id} was submitted without --port", "name two ports as 8080:80"
            )
        with forwarder(wanted) as forward:
            forward.serve(Target(rota, details.job.id, worker))
            for each in forward.ports:
                say(f"127.0.0.1:{each.here} leads to port {each.there} of job {details.job.id}")
            rota.wait(details.job.id)


def forwarder(ports: list[str]) -> Forwarder:
    """Listens already; see `Forwarder`."""
    from rota.client.forward import Forwarder, Ports

    return Forwarder([Ports.of_text(each) for each in ports], complain)


def _entry(command: list[str], *, on_terminal: bool) -> Entry:
    from rota.cli.terminal import size
    from rota.wire.sessions import Entry

    if not on_terminal:
        return Entry(command)
    rows, columns = size()
    return Entry(command, rows, columns, os.environ.get("TERM", "dumb"))


def _enter(job: str, entry: Entry, *, worker: int | None) -> int:
    from rota.cli.terminal import attend
    from rota.client import Client
    from rota.client.sessions import enter

    with Client() as rota, enter(rota, job, entry=entry, worker=worker) as session:
        code = attend(session, on_terminal=entry.columns > 0)
    if session.reason:
        complain(session.reason)
    return code
