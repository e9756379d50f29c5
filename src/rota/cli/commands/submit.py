"""`rota submit`: put a job into the queue."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rota.cli.flags import takes
from rota.cli.output.lines import complain, say
from rota.cli.submit_flags import Flags
from rota.errors import UserError, shown

if TYPE_CHECKING:
    from rota.client import Client
    from rota.client.forward import Forwarder
    from rota.wire.jobs import JobRequest
    from rota.wire.moves import MoveRequest

app = typer.Typer()

CARRIED = (
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
"""What a job without an image takes over from the submitter's environment."""


@app.command(epilog="Example: rota submit --gpus 2 --name bert -- python train.py --epochs 3")
@takes(Flags)
def submit(flags: Flags) -> None:
    """Put a job into the queue. It runs as you, in this folder, when its turn comes."""
    from rota.client import Client

    requests = _requests(flags)
    plan = _plan(flags)
    with Client() as rota:
        if plan is not None:
            # A plan that is refused is told before there is a job.
            rota.move_later(plan)
        if flags.ship is not None:
            requests = _shipped(rota, flags.ship, requests=requests)
        if flags.is_dry:
            _dry_run(rota, requests, as_json=flags.as_json)
            return
        stays = flags.waits or flags.follows
        with _listening(requests if stays else []) as forward:
            ids = rota.submit_many(requests)
            if plan is not None:
                rota.move_later(replace(plan, jobs=ids))
            _tell(ids, as_json=flags.as_json)
            if forward is not None:
                _serve(rota, ids, forward=forward)
            if stays:
                raise typer.Exit(_watch(rota, ids, follows=flags.follows))


def _plan(flags: Flags) -> MoveRequest | None:
    """The other daemon's address and our token there go along: we may be away when it is time."""
    from rota.client.find import door_of
    from rota.wire.moves import MoveRequest

    if bool(flags.move_after) != bool(flags.to):
        raise UserError("--move-after and --to belong together", "give both, or none of them")
    if not flags.move_after:
        return None
    door = door_of(flags.to)
    if door.socket:
        what = f"'{shown(flags.to)}' is a socket, which only this machine can reach"
        raise UserError(what, "name a context with an http or https URL")
    return MoveRequest([], to=flags.to, url=door.url, token=door.token, after=flags.move_after)


def _requests(flags: Flags) -> list[JobRequest]:
    """What the flags say; where they do not, the file; then variables and the project's file."""
    from rota.cli.job_file import read, request
    from rota.config.load import Sources, submit_settings
    from rota.wire.jobs import JobRequest

    known = {each.name for each in fields(JobRequest)}
    given = {each.name: getattr(flags, each.name) for each in fields(flags) if each.name in known}
    given = {name: value for name, value in given.items() if value not in (None, False)}
    env = _variables(given.pop("env", []))
    usual = submit_settings(Sources(Path.cwd())).submit()
    usual_env: dict[str, str] = usual.pop("env", {})
    jobs: list[dict[str, Any]] = read(flags.file) if flags.file else [{}]
    return [
        request(
            _filled(
                {**usual, **job, **given}, usual_env | job.get("env", {}) | env, ship=flags.ship
            )
        )
        for job in jobs
    ]


def _filled(
    job: dict[str, Any], env: dict[str, str], *, ship: Path | None = None
) -> dict[str, Any]:
    """With what a submitter takes for granted: the folder, the search path, the umask."""
    umask = os.umask(0o022)
    os.umask(umask)
    if not job.get("image"):
        carried = {name: os.environ[name] for name in CARRIED if name in os.environ}
        env = {**carried, **env}
        job.setdefault("workdir", "" if ship else str(Path.cwd()))
    if job.get("workdir"):
        workdir = Path(job["workdir"])
        job["workdir"] = _inside(ship, workdir) if ship else str(workdir.absolute())
    return {**job, "env": env, "umask": job.get("umask", umask)}


def _inside(ship: Path, workdir: Path) -> str:
    """A folder of the code that is shipped, as seen from its top."""
    if workdir.is_absolute() or ".." in workdir.parts:
        raise UserError(
            f"workdir '{shown(str(workdir))}' is not inside the code that --ship sends",
            f"write it as seen from {shown(str(ship))}, or leave it out",
        )
    if not (ship / workdir).is_dir():
        raise UserError(f"there is no folder '{shown(str(workdir))}' in {shown(str(ship))}")
    return "" if workdir == Path() else str(workdir)


def _variables(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, has_value, value = word.partition("=")
        if not has_value and name not in os.environ:
            raise UserError(f"--env {name[:60]}: it is not set here", "write NAME=VALUE")
        found[name] = value if has_value else os.environ[name]
    return found


def _shipped(rota: Client, folder: Path, *, requests: list[JobRequest]) -> list[JobRequest]:
    """With the folder's code, which is where they run."""
    snapshot = rota.ship(folder)
    return [replace(request, snapshot=snapshot) for request in requests]


def _dry_run(rota: Client, requests: list[JobRequest], *, as_json: bool) -> None:
    from rota.cli.output.jobs import say_jobs

    say_jobs(rota.check(requests), as_json=as_json)


def _tell(ids: list[str], *, as_json: bool) -> None:
    from rota.cli.output.json import say_json

    if as_json:
        say_json({"ids": ids})
    else:
        say("\n".join(ids))


def _listening(requests: list[JobRequest]) -> AbstractContextManager[Forwarder | None]:
    """At the ports of the first job, before it is submitted: one that is taken is a mistake."""
    from rota.cli.enter import forwarder

    ports = requests[0].ports if requests else []
    return forwarder(ports) if ports else nullcontext()


def _serve(rota: Client, ids: list[str], *, forward: Forwarder) -> None:
    from rota.client.forward import Target

    if len(ids) > 1:
        complain(f"of {len(ids)} jobs, ports lead to the first: {ids[0]}")
    forward.serve(Target(rota, ids[0]))


def _watch(rota: Client, ids: list[str], *, follows: bool) -> int:
    """Until all are over; the first exit code that is not 0."""
    from rota.cli.ends import exit_code
    from rota.cli.logs import copy
    from rota.wire.jobs import LogRange

    codes: list[int] = []
    try:
        for job_id in ids:
            if follows:
                copy(rota.log_bytes(job_id, LogRange(follow=True)))
            codes.append(exit_code(rota, job_id))
    except KeyboardInterrupt:
        _say_what_goes_on(ids[len(codes) :])
        raise
    return next((code for code in codes if code), 0)


def _say_what_goes_on(ids: list[str]) -> None:
    if len(ids) == 1:
        complain(f"job {ids[0]} goes on; 'rota cancel {ids[0]}' ends it")
    elif ids:
        complain(f"{len(ids)} jobs go on; 'rota cancel {' '.join(ids)}' ends them")
