"""`rota exec`, `rota shell` and `rota port-forward`: connect to a running job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.flags import option
from rota.cli.options import JobRef
from rota.cli.output.console import print_err, print_out

if TYPE_CHECKING:
    from rota.client.port_forward import Forwarder
    from rota.wire.exec import ExecRequest

app = typer.Typer()

Worker = Annotated[
    int | None, option("--worker", metavar="N", text="Number of the worker (default: the first).")
]


@app.command(name="exec", epilog="Example: rota exec bert -- nvidia-smi")
def execute(
    job: JobRef,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="Command to run.", show_default=False),
    ],
    *,
    worker: Worker = None,
    on_terminal: Annotated[
        bool, typer.Option("--tty", "-t", help="Give the command a terminal.")
    ] = False,
) -> None:
    """Run a command in a worker's environment. The command has the worker's user, folder,
    variables, container and GPUs. The exit code is the command's."""
    raise typer.Exit(_run(job, _request(command, on_terminal=on_terminal), worker=worker))


@app.command()
def shell(job: JobRef, *, worker: Worker = None) -> None:
    """Open a shell in a worker's environment. The shell has the worker's user, folder, variables,
    container and GPUs."""
    raise typer.Exit(_run(job, _request([], on_terminal=True), worker=worker))


@app.command(name="port-forward", epilog="Example: rota port-forward bert 6006:6006")
def port_forward(
    job: JobRef,
    ports: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST:JOB...",
            help="Local port and the job's port (default: the job's --port).",
            show_default=False,
        ),
    ] = None,
    *,
    worker: Worker = None,
) -> None:
    """Forward local ports to ports of a job. Ends with the job or with Ctrl-C."""
    from rota.client import Client
    from rota.client.port_forward import ForwardTarget
    from rota.errors import UserError

    with Client() as rota:
        details = rota.show(job)
        wanted = ports or details.request.ports
        if not wanted:
            raise UserError(
                f"job {details.job.id} was submitted without --port", "give ports, such as 8080:80"
            )
        with forwarder(wanted) as forward:
            forward.serve(ForwardTarget(rota, details.job.id, worker))
            for each in forward.ports:
                print_out(
                    f"forwarding 127.0.0.1:{each.local} to port {each.remote} of {details.job.id}"
                )
            rota.wait(details.job.id)


def forwarder(ports: list[str]) -> Forwarder:
    """A `Forwarder` that already listens on the local ports."""
    from rota.client.port_forward import Forwarder, PortMapping

    return Forwarder([PortMapping.of_text(each) for each in ports], print_err)


def _request(command: list[str], *, on_terminal: bool) -> ExecRequest:
    from rota.cli.terminal import size
    from rota.wire.exec import ExecRequest

    if not on_terminal:
        return ExecRequest(command)
    rows, columns = size()
    return ExecRequest(command, rows, columns, os.environ.get("TERM", "dumb"))


def _run(job: str, request: ExecRequest, *, worker: int | None) -> int:
    from rota.cli.terminal import attach_terminal
    from rota.client import Client
    from rota.client.exec import open_exec

    with Client() as rota, open_exec(rota, job, request=request, worker=worker) as session:
        code = attach_terminal(session, on_terminal=request.columns > 0)
    if session.reason:
        print_err(session.reason)
    return code
