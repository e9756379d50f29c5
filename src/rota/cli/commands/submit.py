"""`rota submit` and `rota edit`: jobs from flags or from a job file, and changes of jobs by flags.

The flags that describe a job come from the table of job fields, `rota.wire.job_request`.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli import complete
from rota.cli.command import CommandArgument, CommandOption, command, decimal, flag, whole
from rota.cli.options import JOB, JSON, TO
from rota.cli.output.console import print_err, print_json_line, print_out
from rota.errors import MAX_SHOWN_PATH_CHARS, UserError, shown
from rota.wire.job_request import GROUPS, JobField, edit_fields, job_fields

if TYPE_CHECKING:
    from rota.cli.command import Completer
    from rota.client import Client
    from rota.client.port_forward import Forwarder
    from rota.wire.job_request import JobRequest
    from rota.wire.job_view import JobView
    from rota.wire.moves import MoveRequest

REMOVABLE = ("time_limit", "memory", "gpu_types")
"""The limits that `rota edit` removes with the word 'none'."""
DEFAULT = re.compile(r" \(default: [^)]*\)")
LOCAL_ENGINE = "local"
"""The engine whose jobs see the folders of the daemon's machine."""


@dataclass(frozen=True, slots=True)
class SubmitFlags:
    """The flags of `rota submit`. `job` holds the given fields of the job, by name."""

    job: dict[str, Any]
    file: Path | None
    ship: Path | None
    move_after: str
    to: str
    is_dry: bool
    waits: bool
    follows: bool
    takes_all_variables: bool
    as_json: bool


def _job_option(field: JobField, *, is_edit: bool = False) -> CommandOption:
    """The flag of a field of the job. None means that the flag is not given: then a submit uses the
    default, and an edit leaves the field as it is."""
    info = field.info
    text = info.flag_text or info.text
    parsers = {"int": whole, "float": decimal, "bool": None, "list[int]": whole}
    return CommandOption(
        *info.flags,
        name=field.name,
        text=DEFAULT.sub("", text) if is_edit else text,
        metavar=info.metavar,
        parse=parsers.get(field.type, str),
        is_repeatable=field.type.startswith(("list", "dict")),
        group=info.group,
        complete=_completer(field),
    )


def _completer(field: JobField) -> Completer | None:
    if field.info.choices:
        return complete.choices(field.info.choices)
    by_name = {"project": complete.projects, "after": complete.jobs}
    return by_name.get(field.name)


def _job_options() -> list[CommandOption]:
    """The flags of all fields, in the order of the groups."""
    options = [_job_option(each) for each in job_fields().values() if each.info.flags]
    return sorted(options, key=lambda each: GROUPS.index(each.group))


@command(
    "submit",
    CommandArgument(
        "command",
        metavar="COMMAND...",
        text="Command to run.",
        is_repeatable=True,
        is_required=False,
        is_program=True,
    ),
    *_job_options(),
    CommandOption(
        "--file",
        "-f",
        name="file",
        metavar="FILE",
        text="Job file, or - for stdin; flags override its fields.",
        parse=Path,
    ),
    CommandOption(
        "--ship",
        name="ship",
        metavar="DIR",
        text="Upload this folder and run the job in it.",
        parse=Path,
    ),
    CommandOption(
        "--move-after",
        name="move_after",
        metavar="TIME",
        text="Move the job to the context given by --to if it is still queued after TIME.",
        parse=str,
        default="",
    ),
    TO,
    flag(
        "--env-all",
        name="takes_all_variables",
        text="Pass on all variables of this shell, except secrets (default: the site's list).",
    ),
    flag(
        "--dry-run",
        name="is_dry",
        text="Print where and when the job would start, without submitting it.",
    ),
    flag("--wait", name="waits", text="Wait for the job's end; exit with its code."),
    flag(
        "--follow",
        name="follows",
        text="Print the job's output until the job ends; exit with its code.",
    ),
    JSON,
    epilog="Example: rota submit --gpus 2 --name bert -- python train.py --epochs 3. It starts one"
    " process that sees two GPUs: the rule is one process per node. With --processes per-gpu,"
    " it starts two processes that see one GPU each.",
)
def submit(**values: Any) -> int:
    """Submit a job to the queue. It runs as you, in this folder."""
    from rota.client import Client

    job = {name: values.pop(name) for name in job_fields() if name in values}
    flags = SubmitFlags(job={k: v for k, v in job.items() if v not in (None, [])}, **values)
    requests = _requests(flags)
    move = _move_request(flags)
    with Client(takes_context=False) as rota:
        _check_folders(rota, requests)
        if move is not None:
            # Without jobs this only checks the request, so that an error submits nothing.
            rota.move_later(move)
        if flags.ship is not None:
            requests = _with_snapshot(rota, flags.ship, requests=requests)
        if flags.is_dry:
            from rota.cli.submit_plan import print_plan

            print_plan(rota.plan(requests), as_json=flags.as_json)
            return 0
        waits = flags.waits or flags.follows
        with _listening(requests if waits else []) as forward:
            ids = rota.submit_many(requests)
            if move is not None:
                rota.move_later(replace(move, jobs=ids))
            if not flags.as_json:
                print_out("\n".join(ids))
            elif flags.follows:
                _print_job_lines(rota, ids)
            elif not waits:
                from rota.cli.output.jobs import print_job_objects

                print_job_objects([rota.show(each).job for each in ids])
            if forward is not None:
                _serve(rota, ids, forward=forward)
            if waits:
                return _wait(rota, ids, flags=flags)
    return 0


def _move_request(flags: SubmitFlags) -> MoveRequest | None:
    """The request holds the other daemon's address and the user's token there, because the daemon
    moves the job without this client."""
    if bool(flags.move_after) != bool(flags.to):
        raise UserError("--move-after and --to need each other", "give both or neither")
    if not flags.move_after:
        return None
    from rota.client.endpoint import endpoint_of
    from rota.wire.moves import MoveRequest

    endpoint = endpoint_of(flags.to)
    if endpoint.socket:
        what = f"context '{shown(flags.to)}' is a socket, which only this machine can reach"
        raise UserError(what, "use a context with an http or https URL")
    return MoveRequest(
        [],
        to=flags.to,
        url=endpoint.url,
        token=endpoint.token,
        after=flags.move_after,
        allows_plain_http=endpoint.allows_plain_http,
    )


def _requests(flags: SubmitFlags) -> list[JobRequest]:
    """The jobs to submit. Flags override the job file, which overrides the settings."""
    from rota.cli.job_file import read, request
    from rota.client.submit_context import current_folder
    from rota.config.load import Sources, submit_settings

    given = dict(flags.job)
    env = _variables(given.pop("env", []))
    defaults = submit_settings(Sources(current_folder())).submit()
    default_env: dict[str, str] = defaults.pop("env", {})
    jobs: list[dict[str, Any]] = read(flags.file) if flags.file else [{}]
    return [
        _with_context(
            request(
                {**defaults, **job, **given, "env": default_env | job.get("env", {}) | env},
            ),
            flags,
        )
        for job in jobs
    ]


def _with_context(request: JobRequest, flags: SubmitFlags) -> JobRequest:
    """The job with the submitter's folder, umask and variables."""
    from rota.client.submit_context import current_folder, with_submit_context

    if request.workdir:
        folder = Path(request.workdir)
        workdir = _inside(flags.ship, folder) if flags.ship else str(current_folder() / folder)
        request = replace(request, workdir=workdir)
    return with_submit_context(
        request, takes_all=flags.takes_all_variables, is_shipped=flags.ship is not None
    )


def _check_folders(rota: Client, requests: list[JobRequest]) -> None:
    """Refuse a working folder that does not exist, if the job runs on this machine without an image
    that may have the folder."""
    for request in requests:
        is_elsewhere = request.image or request.snapshot or not request.workdir
        if is_elsewhere or Path(request.workdir).is_dir() or not rota.endpoint.socket:
            continue
        if rota.status().engine == LOCAL_ENGINE:
            what = f"the working folder {shown(request.workdir, MAX_SHOWN_PATH_CHARS)}"
            raise UserError(f"{what} does not exist", "create it, or correct --workdir")


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


def _print_job_lines(rota: Client, ids: list[str]) -> None:
    from rota.cli.output.jobs import job_object

    for each in ids:
        print_json_line({"type": "job", **job_object(rota.show(each).job)})


def _listening(requests: list[JobRequest]) -> AbstractContextManager[Forwarder | None]:
    """Listen on the local ports of the first job before it is submitted, so that a port in use
    submits nothing."""
    ports = requests[0].ports if requests else []
    if not ports:
        return nullcontext()
    from rota.cli.commands.exec import forwarder

    return forwarder(ports)


def _serve(rota: Client, ids: list[str], *, forward: Forwarder) -> None:
    from rota.client.port_forward import ForwardTarget

    if len(ids) > 1:
        print_err(f"ports are forwarded to the first of {len(ids)} jobs: {ids[0]}")
    forward.serve(ForwardTarget(rota, ids[0]))


def _wait(rota: Client, ids: list[str], *, flags: SubmitFlags) -> int:
    """Wait until all jobs have ended. Return the first exit code that is not 0."""
    from rota.cli.commands.logs import follow_logs
    from rota.cli.exit_codes import wait_for_end

    ends: list[tuple[JobView, int]] = []
    try:
        for job_id in ids:
            if flags.follows:
                follow_logs(rota, job_id, as_json=flags.as_json)
            ends.append(wait_for_end(rota, job_id))
    except KeyboardInterrupt:
        _print_unfinished(ids[len(ends) :])
        raise
    if flags.as_json and not flags.follows:
        from rota.cli.output.jobs import print_job_objects

        print_job_objects([job for job, _ in ends])
    return next((code for _, code in ends if code), 0)


def _print_unfinished(ids: list[str]) -> None:
    if len(ids) == 1:
        print_err(f"job {ids[0]} has not ended; 'rota cancel {ids[0]}' cancels it")
    elif ids:
        print_err(f"{len(ids)} jobs have not ended; 'rota cancel {' '.join(ids)}' cancels them")


@command(
    "edit",
    JOB,
    *(_job_option(each, is_edit=True) for each in edit_fields().values()),
    JSON,
    epilog="While a job runs, only its name, priority, time limit and retries change. The value"
    " 'none' removes a limit. 'rota resize' changes the number of GPUs. Example:"
    " rota edit bert --time-limit 6h --priority 5.",
)
def edit(*, job: str, as_json: bool, **values: Any) -> None:
    """Change a job that has not ended, or all such jobs of an array."""
    from rota.cli.output.jobs import print_job_objects, print_jobs
    from rota.client import Client
    from rota.wire.job_changes import JobEdit

    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        flags = ", ".join(max(each.info.flags, key=len) for each in edit_fields().values())
        raise UserError("nothing to change", f"give at least one of {flags}")
    for name, value in given.items():
        if name in REMOVABLE and value in ("none", ["none"]):
            given[name] = type(value)()
    with Client() as rota:
        edited = rota.edit(job, JobEdit(**given))
    if as_json:
        print_job_objects(edited)
    else:
        print_jobs(edited, as_json=False)


COMMANDS = (submit, edit)
