"""`rota submit`: submits jobs from flags or from a job file.

A flag that describes the job has the name of the field in a job file and in `JobRequest`.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.flags import option, takes
from rota.cli.options import AsJson, To
from rota.cli.output.console import print_err, print_out
from rota.errors import UserError, shown

if TYPE_CHECKING:
    from rota.client import Client
    from rota.client.port_forward import Forwarder
    from rota.wire.jobs import JobRequest
    from rota.wire.moves import MoveRequest

Text = str | None
Texts = list[str] | None

app = typer.Typer()

INHERITED_VARIABLES = (
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TZ",
)
"""Variables that a job without an image inherits from the submitter's environment."""


@dataclass(frozen=True, slots=True)
class SubmitFlags:
    """The flags of `rota submit`. None means that the flag is not given."""

    command: Annotated[
        Texts, typer.Argument(metavar="-- COMMAND...", help="Command to run.", show_default=False)
    ] = None
    file: Annotated[
        Path | None,
        option("--file", "-f", metavar="FILE", text="Job file; flags override its fields."),
    ] = None
    name: Annotated[
        Text,
        option("--name", "-n", metavar="NAME", text="Job name (default: the script's name)."),
    ] = None
    gpus: Annotated[
        Text,
        option(
            "--gpus", "-g", metavar="N", text="GPUs: 2, 1..4, a share as 0.5, or 0 (default: 1)."
        ),
    ] = None
    gpus_per_worker: Annotated[
        int | None,
        option("--gpus-per-worker", metavar="N", text="GPUs of each worker (default: 1)."),
    ] = None
    gpu_memory: Annotated[
        Text,
        option("--gpu-memory", metavar="SIZE", text="Share one GPU: memory to reserve, as 6GiB."),
    ] = None
    gpu_types: Annotated[
        Texts, option("--gpu-type", metavar="TYPE", text="Run on this GPU type only; repeatable.")
    ] = None
    cpus: Annotated[float | None, option("--cpus", metavar="N", text="CPUs of each worker.")] = None
    memory: Annotated[
        Text, option("--memory", metavar="SIZE", text="Host memory of each worker, as 32GiB.")
    ] = None
    priority: Annotated[
        int | None,
        option("--priority", "-p", metavar="N", text="Higher runs first (default: 0)."),
    ] = None
    project: Annotated[
        Text, option("--project", metavar="NAME", text="Project that the job is charged to.")
    ] = None
    mode: Annotated[
        Text,
        option("--mode", metavar="MODE", text="Resizing: fixed, restart, torchrun or live."),
    ] = None
    epochs: Annotated[
        float | None, option("--epochs", metavar="N", text="Number of epochs that the job trains.")
    ] = None
    hours: Annotated[
        float | None, option("--hours", metavar="N", text="Estimated run time in hours.")
    ] = None
    env: Annotated[
        Texts,
        option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            text="Set a variable, or pass yours on; repeatable.",
        ),
    ] = None
    workdir: Annotated[
        Text,
        option("--workdir", "-w", metavar="DIR", text="Working folder (default: this folder)."),
    ] = None
    image: Annotated[
        Text, option("--image", metavar="IMAGE", text="Run in a container of this image.")
    ] = None
    mounts: Annotated[
        Texts,
        option("--mount", metavar="SRC:DST[:rw]", text="Mount into the container; repeatable."),
    ] = None
    ports: Annotated[
        Texts,
        option("--port", metavar="HOST:JOB", text="Forward a port to the job; repeatable."),
    ] = None
    host_network: Annotated[
        bool,
        typer.Option("--host-network", help="Use the network of the machine in a container."),
    ] = False
    time_limit: Annotated[
        Text, option("--time-limit", metavar="TIME", text="Stop the job after 90m, 2h, 1d.")
    ] = None
    retries: Annotated[
        int | None, option("--retries", metavar="N", text="Number of retries after a failure.")
    ] = None
    retry_on: Annotated[
        list[int] | None,
        option("--retry-on", metavar="CODE", text="Also retry after this exit code; repeatable."),
    ] = None
    grace: Annotated[
        Text,
        option(
            "--grace", metavar="TIME", text="Time between stop request and kill (default: 30s)."
        ),
    ] = None
    after: Annotated[
        Texts,
        option("--after", metavar="JOB", text="Start after this job succeeded; repeatable."),
    ] = None
    array: Annotated[
        Text,
        option("--array", metavar="INDICES", text="One job per index: 10, 0-9 or 1,5,9."),
    ] = None
    hold: Annotated[bool, typer.Option("--hold", help="Hold the job until 'rota release'.")] = False
    move_after: Annotated[
        Text,
        option(
            "--move-after",
            metavar="TIME",
            text="Move the job to the context --to if still queued after TIME.",
        ),
    ] = None
    to: To = ""
    ship: Annotated[
        Path | None,
        option("--ship", metavar="DIR", text="Upload this folder and run the job in it."),
    ] = None
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the job without submitting it.")
    ] = False
    waits: Annotated[
        bool, typer.Option("--wait", help="Wait for the job's end; exit with its code.")
    ] = False
    follows: Annotated[
        bool, typer.Option("--follow", help="As --wait, and print the job's output.")
    ] = False
    as_json: AsJson = False


@app.command(epilog="Example: rota submit --gpus 2 --name bert -- python train.py --epochs 3")
@takes(SubmitFlags)
def submit(flags: SubmitFlags) -> None:
    """Submit a job to the queue. It runs as you, in this folder."""
    from rota.client import Client

    requests = _requests(flags)
    move = _move_request(flags)
    with Client() as rota:
        if move is not None:
            # Without jobs this only checks the request, so that an error submits nothing.
            rota.move_later(move)
        if flags.ship is not None:
            requests = _with_snapshot(rota, flags.ship, requests=requests)
        if flags.is_dry:
            _dry_run(rota, requests, as_json=flags.as_json)
            return
        waits = flags.waits or flags.follows
        with _listening(requests if waits else []) as forward:
            ids = rota.submit_many(requests)
            if move is not None:
                rota.move_later(replace(move, jobs=ids))
            _print_ids(ids, as_json=flags.as_json)
            if forward is not None:
                _serve(rota, ids, forward=forward)
            if waits:
                raise typer.Exit(_wait(rota, ids, follows=flags.follows))


def _move_request(flags: SubmitFlags) -> MoveRequest | None:
    """The request holds the other daemon's address and the user's token there, because the daemon
    moves the job without this client."""
    from rota.client.endpoint import endpoint_of
    from rota.wire.moves import MoveRequest

    if bool(flags.move_after) != bool(flags.to):
        raise UserError("--move-after and --to need each other", "give both or neither")
    if not flags.move_after:
        return None
    endpoint = endpoint_of(flags.to)
    if endpoint.socket:
        what = f"context '{shown(flags.to)}' is a socket, which only this machine can reach"
        raise UserError(what, "use a context with an http or https URL")
    return MoveRequest(
        [], to=flags.to, url=endpoint.url, token=endpoint.token, after=flags.move_after
    )


def _requests(flags: SubmitFlags) -> list[JobRequest]:
    """The jobs to submit. Flags override the job file, which overrides the settings."""
    from rota.cli.job_file import read, request
    from rota.config.load import Sources, submit_settings
    from rota.wire.jobs import JobRequest

    known = {each.name for each in fields(JobRequest)}
    given = {each.name: getattr(flags, each.name) for each in fields(flags) if each.name in known}
    given = {name: value for name, value in given.items() if value not in (None, False)}
    env = _variables(given.pop("env", []))
    defaults = submit_settings(Sources(Path.cwd())).submit()
    default_env: dict[str, str] = defaults.pop("env", {})
    jobs: list[dict[str, Any]] = read(flags.file) if flags.file else [{}]
    return [
        request(
            _with_context(
                {**defaults, **job, **given},
                default_env | job.get("env", {}) | env,
                ship=flags.ship,
            )
        )
        for job in jobs
    ]


def _with_context(
    job: dict[str, Any], env: dict[str, str], *, ship: Path | None = None
) -> dict[str, Any]:
    """The job with the submitter's folder, umask and inherited variables."""
    umask = os.umask(0o022)
    os.umask(umask)
    if not job.get("image"):
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        env = {**inherited, **env}
        job.setdefault("workdir", "" if ship else str(Path.cwd()))
    if job.get("workdir"):
        workdir = Path(job["workdir"])
        job["workdir"] = _inside(ship, workdir) if ship else str(workdir.absolute())
    return {**job, "env": env, "umask": job.get("umask", umask)}


def _inside(ship: Path, workdir: Path) -> str:
    """The working folder, relative to the shipped folder."""
    if workdir.is_absolute() or ".." in workdir.parts:
        raise UserError(
            f"workdir '{shown(str(workdir))}' is not inside the folder that --ship uploads",
            f"write it relative to {shown(str(ship))}, or leave it out",
        )
    if not (ship / workdir).is_dir():
        raise UserError(f"there is no folder '{shown(str(workdir))}' in {shown(str(ship))}")
    return "" if workdir == Path() else str(workdir)


def _variables(assignments: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for assignment in assignments:
        name, has_value, value = assignment.partition("=")
        if not has_value and name not in os.environ:
            raise UserError(
                f"--env {name[:60]}: the variable is not set in this shell", "write NAME=VALUE"
            )
        found[name] = value if has_value else os.environ[name]
    return found


def _with_snapshot(rota: Client, folder: Path, *, requests: list[JobRequest]) -> list[JobRequest]:
    """Upload the folder and let all jobs run in its snapshot."""
    snapshot = rota.ship(folder)
    return [replace(request, snapshot=snapshot) for request in requests]


def _dry_run(rota: Client, requests: list[JobRequest], *, as_json: bool) -> None:
    from rota.cli.output.jobs import print_jobs

    print_jobs(rota.check(requests), as_json=as_json)


def _print_ids(ids: list[str], *, as_json: bool) -> None:
    from rota.cli.output.console import print_json

    if as_json:
        print_json({"ids": ids})
    else:
        print_out("\n".join(ids))


def _listening(requests: list[JobRequest]) -> AbstractContextManager[Forwarder | None]:
    """Listen on the local ports of the first job before it is submitted, so that a port in use
    submits nothing."""
    from rota.cli.commands.exec import forwarder

    ports = requests[0].ports if requests else []
    return forwarder(ports) if ports else nullcontext()


def _serve(rota: Client, ids: list[str], *, forward: Forwarder) -> None:
    from rota.client.port_forward import ForwardTarget

    if len(ids) > 1:
        print_err(f"ports are forwarded to the first of {len(ids)} jobs: {ids[0]}")
    forward.serve(ForwardTarget(rota, ids[0]))


def _wait(rota: Client, ids: list[str], *, follows: bool) -> int:
    """Wait until all jobs have ended. Return the first exit code that is not 0."""
    from rota.cli.commands.logs import copy
    from rota.cli.exit_codes import wait_for_exit_code
    from rota.wire.jobs import LogRange

    codes: list[int] = []
    try:
        for job_id in ids:
            if follows:
                copy(rota.log_bytes(job_id, LogRange(follow=True)))
            codes.append(wait_for_exit_code(rota, job_id))
    except KeyboardInterrupt:
        _print_unfinished(ids[len(codes) :])
        raise
    return next((code for code in codes if code), 0)


def _print_unfinished(ids: list[str]) -> None:
    if len(ids) == 1:
        print_err(f"job {ids[0]} is still running; 'rota cancel {ids[0]}' cancels it")
    elif ids:
        print_err(f"{len(ids)} jobs are still running; 'rota cancel {' '.join(ids)}' cancels them")
