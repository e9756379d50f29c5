"""`rota exec`, `shell`, `port-forward` and `cp`: connect to a running job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rota.cli.command import CommandArgument, command, flag
from rota.cli.options import JOB, WORKER
from rota.cli.output.console import print_err, print_out

if TYPE_CHECKING:
    from rota.client.port_forward import Forwarder
    from rota.wire.exec import ExecRequest


@command(
    "exec",
    JOB,
    CommandArgument(
        "words",
        metavar="COMMAND...",
        text="Command to run.",
        is_repeatable=True,
        is_program=True,
    ),
    WORKER,
    flag("--tty", "-t", name="on_terminal", text="Give the command a terminal."),
    epilog="Example: rota exec bert -- nvidia-smi",
)
def execute(*, job: str, words: list[str], worker: int | None, on_terminal: bool) -> int:
    """Run a command in a worker's environment. The command has the worker's user, folder,
    variables, container and GPUs. The exit code is the command's."""
    return _run(job, _request(words, on_terminal=on_terminal), worker=worker)


@command("shell", JOB, WORKER)
def shell(*, job: str, worker: int | None) -> int:
    """Open a shell in a worker's environment. The shell has the worker's user, folder, variables,
    container and GPUs."""
    return _run(job, _request([], on_terminal=True), worker=worker)


@command(
    "port-forward",
    JOB,
    CommandArgument(
        "ports",
        metavar="HOST:JOB...",
        text="Local port and the job's port (default: the job's --port).",
        is_repeatable=True,
        is_required=False,
    ),
    WORKER,
    epilog="Example: rota port-forward bert 6006:6006",
)
def port_forward(*, job: str, ports: list[str], worker: int | None) -> None:
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


@command(
    "cp",
    CommandArgument("source", metavar="SOURCE", text="JOB:PATH or a path of this machine."),
    CommandArgument("target", metavar="TARGET", text="A path of this machine or JOB:PATH."),
    WORKER,
    epilog="Example: rota cp bert:out/model.pt .",
)
def cp(*, source: str, target: str, worker: int | None) -> int:
    """Copy a file or folder from a job, or to a running one. Needs 'tar' where the job runs.

    PATH is relative to the folder of the job; JOB: alone is this folder. A target that is a folder
    gets the copy inside. Links and special files are left out: then the exit code is 1. An ended
    job's folder can only be read: a shipped one for the time in the setting 'keep_workdir'. On
    Kubernetes the job must run.
    """
    from pathlib import Path

    from rota.cli.file_copy import copy_from_job, copy_to_job, job_path
    from rota.client import Client
    from rota.errors import UserError

    remote_source, remote_target = job_path(source, worker=worker), job_path(target, worker=worker)
    with Client() as rota:
        if remote_source is not None and remote_target is None:
            n_left_out = copy_from_job(rota, remote_source, target=Path(target))
        elif remote_target is not None and remote_source is None:
            n_left_out = copy_to_job(rota, Path(source), target=remote_target)
        else:
            what = "exactly one of SOURCE and TARGET must be JOB:PATH"
            raise UserError(what, "write ./NAME for a path of this machine with a colon")
    if n_left_out:
        print_err(f"left out {n_left_out} links and special files")
    return 1 if n_left_out else 0


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


COMMANDS = (execute, shell, port_forward, cp)
