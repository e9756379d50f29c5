"""Commands about existing jobs: list, show, story, cancel, hold, resize, wait and others.

A command that takes several jobs also takes the name of an array, which means its jobs.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from rota.cli import complete, job_changes
from rota.cli.command import CommandArgument, CommandOption, command, flag, whole
from rota.cli.options import JOB, JOBS, JSON, TO
from rota.cli.output.console import print_err, print_out
from rota.errors import UserError, did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.client import Client
    from rota.wire.job_view import JobList, JobView

T = TypeVar("T")
NO_MATCHING_JOBS = "no matching jobs; 'rota submit -- COMMAND' submits one"
NO_OWN_JOBS = "you have no jobs; 'rota list --all' shows the jobs of all users"
MAX_JOBS = 100_000
PAGE_SIZE = 1000


@command(
    "list",
    flag("--all", "-a", name="all_users", text="Jobs of all users."),
    CommandOption(
        "--user", "-u", name="user", metavar="NAME", text="Jobs of this user.", parse=str
    ),
    CommandOption(
        "--state",
        "-s",
        name="states",
        metavar="STATE",
        text="Only jobs in these states, as running,queued.",
        parse=str,
        is_repeatable=True,
        complete=complete.states,
    ),
    CommandOption(
        "--project",
        name="project",
        metavar="NAME",
        text="Only jobs of this project.",
        parse=str,
        complete=complete.projects,
    ),
    CommandOption(
        "--limit",
        name="limit",
        metavar="N",
        text="Number of jobs at most (default: 100).",
        parse=whole,
        default=100,
    ),
    flag("--watch", name="watches", text="Keep the table up to date."),
    JSON,
)
def list_jobs(
    *,
    all_users: bool,
    user: str | None,
    states: list[str] | None,
    project: str | None,
    limit: int,
    watches: bool,
    as_json: bool,
) -> None:
    """List jobs: running jobs, then queued jobs in the order in which they are served, then ended
    jobs, newest first. Without --all or --user, only your own."""
    from rota.client import Client

    if watches and as_json:
        raise UserError("--watch cannot print JSON", "leave out --watch or --json")
    if not 1 <= limit <= MAX_JOBS:
        raise UserError(f"--limit {limit} is out of range", f"use 1 to {MAX_JOBS}")
    wanted = [name for each in states or [] for name in each.replace(",", " ").split()]
    _check_states(wanted)
    with Client() as rota:
        owner = user or ("" if all_users else rota.me())

        def fetch() -> JobList:
            return _fetch(rota, owner, states=wanted, project=project or "", limit=limit)

        if watches:
            _watch(rota, fetch)
            return
        found = fetch()
        if not found.jobs and not as_json:
            has_filter = all_users or user or states or project
            print_err(NO_MATCHING_JOBS if has_filter else NO_OWN_JOBS)
        else:
            from rota.cli.output.jobs import print_jobs

            print_jobs(found.jobs, as_json=as_json)
        if found.more:
            print_err(_not_shown(found))


def _check_states(states: list[str]) -> None:
    from rota.wire.job_view import STATES

    for state in states:
        if state not in STATES:
            hint = did_you_mean(state, STATES) or f"the states are {', '.join(STATES)}"
            raise UserError(f"unknown state '{shown(state)}'", hint)


def _fetch(rota: Client, user: str, *, states: list[str], project: str, limit: int) -> JobList:
    """The first jobs in the order of the queue, and how many there are besides. The newest ended
    jobs of further pages follow."""
    from rota.wire.job_view import FINAL_STATES, JobList

    found: list[JobView] = []
    before: int | None = None
    more = 0
    ended = [state for state in states or FINAL_STATES if state in FINAL_STATES]
    while True:
        page = rota.jobs(
            user=user,
            states=states if before is None else ended,
            project=project,
            before=before,
            limit=min(PAGE_SIZE, limit - len(found)),
            skip=len(found) if before is None else None,
        )
        more = page.more if before is None else max(0, more - len(page.jobs))
        found += page.jobs
        before = page.next
        is_last = before is None and not (page.jobs and more)
        if is_last or len(found) >= limit:
            return JobList(found, more=more)


def _not_shown(found: JobList) -> str:
    shown, more = len(found.jobs), found.more
    are = "job is" if more == 1 else "jobs are"
    return f"{more} more {are} not shown; 'rota list --limit {shown + more}' shows all"


def _watch(rota: Client, fetch: Callable[[], JobList]) -> None:
    from rota.cli.output.jobs import job_table
    from rota.cli.output.live import live

    def lines() -> list[str]:
        found = fetch()
        drawn = job_table(found.jobs, now=time.time())
        return [*drawn, _not_shown(found)] if found.more else drawn

    live(lines, changes=rota.events())


@command(
    "show",
    JOB,
    flag("--env", name="has_env", text="Show the values of environment variables, not of secrets."),
    flag("--file", name="as_file", text="Print the job file that submits the same job."),
    JSON,
)
def show(*, job: str, has_env: bool, as_file: bool, as_json: bool) -> None:
    """Show the details of a job, such as why it waits. For an array, list its jobs."""
    from rota.cli.output.console import print_json
    from rota.cli.output.jobs import details_object, print_details, print_jobs
    from rota.client import Client

    with Client() as rota:
        try:
            details = rota.show(job)
        except UserError as error:
            if not _is_array_error(error):
                raise
            print_jobs(rota.named(job), as_json=as_json)
            return
    if as_json:
        print_json(details_object(details, has_env=has_env))
    elif as_file:
        from rota.cli.job_file import job_file_lines, without_secrets

        request, secrets = without_secrets(details.request)
        print_out("\n".join(job_file_lines(request)))
        if secrets:
            print_err(f"left out secret variables: {', '.join(secrets)}; pass them with --env NAME")
    else:
        print_details(details, has_env=has_env)


@command("story", JOB, JSON)
def story(*, job: str, as_json: bool) -> None:
    """Show the history of a job: when its state changed, and why."""
    from rota.cli.output.console import print_json
    from rota.cli.output.jobs import print_story
    from rota.client import Client

    with Client() as rota:
        entries = rota.story(job)
    if as_json:
        print_json([asdict(entry) for entry in entries])
    else:
        print_story(entries)


@command("cancel", *job_changes.PARAMETERS)
def cancel(**values: Any) -> int:
    """Cancel jobs. A running job is stopped, and killed after its grace period."""
    return job_changes.change("cancel", **values)


@command("hold", *job_changes.PARAMETERS)
def hold(**values: Any) -> int:
    """Hold jobs: they do not run until they are released. A running job is stopped."""
    return job_changes.change("hold", **values)


@command("release", *job_changes.PARAMETERS)
def release(**values: Any) -> int:
    """Release held jobs: they return to the queue."""
    return job_changes.change("release", **values)


@command("resize", JOB, CommandArgument("gpus", metavar="N|auto", text="Number of GPUs."), JSON)
def resize(*, job: str, gpus: str, as_json: bool) -> None:
    """Set the number of GPUs of an elastic job. With 'auto' the policy sets it."""
    from rota.cli.output.console import print_json
    from rota.cli.output.jobs import job_object, print_jobs
    from rota.client import Client

    if gpus != "auto" and not (gpus.isascii() and gpus.isdecimal() and int(gpus)):
        raise UserError(f"'{shown(gpus)}' is not a number of GPUs", "use 1, 2, ... or auto")
    with Client() as rota:
        resized = rota.resize(job, None if gpus == "auto" else int(gpus))
    if as_json:
        print_json(job_object(resized))
    else:
        print_jobs([resized], as_json=False)


@command("resubmit", JOBS, TO, JSON)
def resubmit(*, jobs: list[str], to: str, as_json: bool) -> None:
    """Submit copies of jobs, or of whole arrays, as new jobs. With --to, move the jobs to another
    daemon instead: each job is cancelled here after the other daemon has accepted it."""
    from rota.client import Client

    with Client() as rota:
        if to:
            with Client(context=to) as target:
                _print_new(target, _moved(rota, target, jobs=jobs, to=to), as_json=as_json)
        else:
            copies = (job_id for job in jobs for job_id in rota.resubmit_all(job))
            _print_new(rota, copies, as_json=as_json)


def _moved(rota: Client, target: Client, *, jobs: list[str], to: str) -> Iterator[str]:
    from rota.client.migration import move

    return (move(rota, target, job=job, to=to) for job in jobs)


def _print_new(rota: Client, ids: Iterator[str], *, as_json: bool) -> None:
    """Print each job as soon as it is submitted: an error of a later one must not hide it."""
    from rota.cli.output.jobs import print_job_objects

    if not as_json:
        for each in ids:
            print_out(each)
        return
    submitted: list[str] = []
    try:
        for each in ids:
            submitted.append(each)  # noqa: PERF402 - an error may end the loop
    finally:
        if submitted:
            print_job_objects([rota.show(each).job for each in submitted])


@command("wait", JOBS, JSON)
def wait(*, jobs: list[str], as_json: bool) -> int:
    """Wait until jobs have ended. The exit code is that of the first job that failed."""
    from rota.cli.exit_codes import wait_for_end
    from rota.cli.output.jobs import print_jobs
    from rota.client import Client

    with Client() as rota:
        # Find all jobs first: a wrong name must not wait for the jobs before it.
        ids = dict.fromkeys(found.id for job in jobs for found in rota.named(job))
        ends = [wait_for_end(rota, each) for each in ids]
    if as_json:
        print_jobs([job for job, _ in ends], as_json=True)
    return next((code for _, code in ends if code), 0)


def _is_array_error(error: UserError) -> bool:
    """Whether the daemon expected one job and got the name of an array."""
    return error.code == "array"


@command(
    "profile",
    JOB,
    CommandOption(
        "--svg", name="svg", metavar="FILE", text="Write charts to this file.", parse=str
    ),
    JSON,
)
def profile(*, job: str, svg: str | None, as_json: bool) -> None:
    """Show the speed-ups, step times and memory of a job."""
    from rota.cli.output.console import print_json
    from rota.cli.output.profile import print_profile
    from rota.client import Client

    with Client() as rota:
        found = rota.profile(job)
    if svg:
        from rota.cli.output.profile_svg import write_svg

        write_svg(found, svg)
    if as_json:
        print_json(asdict(found))
    elif not svg:
        print_profile(found)


COMMANDS = (
    *(list_jobs, show, story, cancel, hold, release, resize, resubmit, wait),
    profile,
)
