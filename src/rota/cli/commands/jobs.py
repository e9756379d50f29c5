"""Commands about existing jobs: list, show, story, cancel, hold, resize, wait and others.

A command that takes several jobs also takes the name of an array, which means its jobs.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from rota.cli import complete
from rota.cli.command import CommandArgument, CommandOption, command, flag, whole
from rota.cli.options import JOB, JOBS, JSON, TO
from rota.cli.output.console import print_err, print_out
from rota.errors import UserError, did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client import Client
    from rota.wire.job_view import JobView

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
        text="Only jobs in this state.",
        parse=str,
        is_repeatable=True,
        complete=complete.states,
    ),
    CommandOption(
        "--project", name="project", metavar="NAME", text="Only jobs of this project.", parse=str
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
    """List jobs, newest first. Without --all or --user, only your own."""
    from rota.client import Client

    if watches and as_json:
        raise UserError("--watch cannot print JSON", "leave out --watch or --json")
    if not 1 <= limit <= MAX_JOBS:
        raise UserError(f"--limit {limit} is out of range", f"use 1 to {MAX_JOBS}")
    _check_states(states or [])
    with Client() as rota:
        owner = user or ("" if all_users else rota.me())

        def fetch() -> list[JobView]:
            return _fetch(rota, owner, states=states or [], project=project or "", limit=limit)

        if watches:
            _watch(rota, fetch)
            return
        found = fetch()
        if not found and not as_json:
            has_filter = all_users or user or states or project
            print_err(NO_MATCHING_JOBS if has_filter else NO_OWN_JOBS)
        else:
            from rota.cli.output.jobs import print_jobs

            print_jobs(found, as_json=as_json)


def _check_states(states: list[str]) -> None:
    from rota.wire.job_view import STATES

    for state in states:
        if state not in STATES:
            hint = did_you_mean(state, STATES) or f"the states are {', '.join(STATES)}"
            raise UserError(f"unknown state '{shown(state)}'", hint)


def _fetch(
    rota: Client, user: str, *, states: list[str], project: str, limit: int
) -> list[JobView]:
    found: list[JobView] = []
    before: int | None = None
    while len(found) < limit:
        page = rota.jobs(
            user=user,
            states=states,
            project=project,
            before=before,
            limit=min(PAGE_SIZE, limit - len(found)),
        )
        found += page.jobs
        before = page.next
        if before is None:
            break
    return found


def _watch(rota: Client, fetch: Callable[[], list[JobView]]) -> None:
    from rota.cli.output.jobs import columns
    from rota.cli.output.live import live
    from rota.cli.output.table import draw

    live(lambda: draw(columns(fetch(), now=time.time())), changes=rota.events())


@command("show", JOB, JSON)
def show(*, job: str, as_json: bool) -> None:
    """Show the details of a job, such as why it waits. For an array, list its jobs."""
    from rota.cli.output.console import print_json
    from rota.cli.output.jobs import print_details, print_jobs
    from rota.client import Client

    with Client() as rota:
        try:
            details = rota.show(job)
        except UserError as error:
            if not _is_array_error(error):
                raise
            print_jobs(_array_jobs(rota, job), as_json=as_json)
            return
    if as_json:
        print_json(asdict(details))
    else:
        print_details(details)


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


@command("cancel", JOBS, JSON)
def cancel(*, jobs: list[str], as_json: bool) -> int:
    """Cancel jobs. A running job is stopped, and killed after its grace period."""
    return _apply(jobs, "cancel", as_json=as_json)


@command("hold", JOBS, JSON)
def hold(*, jobs: list[str], as_json: bool) -> int:
    """Hold jobs: they do not run until they are released. A running job is stopped."""
    return _apply(jobs, "hold", as_json=as_json)


@command("release", JOBS, JSON)
def release(*, jobs: list[str], as_json: bool) -> int:
    """Release held jobs: they return to the queue."""
    return _apply(jobs, "release", as_json=as_json)


@command(
    "resize", JOB, CommandArgument("workers", metavar="N|auto", text="Number of workers."), JSON
)
def resize(*, job: str, workers: str, as_json: bool) -> None:
    """Set the number of workers of an elastic job. With 'auto' the policy sets it."""
    from rota.cli.output.console import print_json
    from rota.cli.output.jobs import print_jobs
    from rota.client import Client

    if workers != "auto" and not (workers.isascii() and workers.isdecimal() and int(workers)):
        raise UserError(f"'{shown(workers)}' is not a number of workers", "use 1, 2, ... or auto")
    with Client() as rota:
        resized = rota.resize(job, None if workers == "auto" else int(workers))
    if as_json:
        print_json(asdict(resized))
    else:
        print_jobs([resized], as_json=False)


@command("resubmit", JOBS, TO, JSON)
def resubmit(*, jobs: list[str], to: str, as_json: bool) -> None:
    """Submit copies of jobs as new jobs. With --to, move the jobs to another daemon instead: each
    job is cancelled here after the other daemon has accepted it."""
    from rota.cli.output.console import print_json
    from rota.client import Client

    with Client() as rota:
        ids = _move(rota, jobs, to=to) if to else [rota.resubmit(job) for job in jobs]
    if as_json:
        print_json({"ids": ids})
    else:
        print_out("\n".join(ids))


def _move(rota: Client, jobs: list[str], *, to: str) -> list[str]:
    from rota.client import Client
    from rota.client.migration import move

    with Client(context=to) as target:
        return [move(rota, target, job=job, to=to) for job in jobs]


@command("wait", JOBS, JSON)
def wait(*, jobs: list[str], as_json: bool) -> int:
    """Wait until jobs have ended. The exit code is that of the first job that failed."""
    from rota.cli.exit_codes import wait_for_end
    from rota.cli.output.console import print_json
    from rota.client import Client

    with Client() as rota:
        ends = [
            end
            for job in jobs
            for end in _for_each_job(rota, job, action=lambda each: wait_for_end(rota, each))
        ]
    if as_json:
        print_json([asdict(job) for job, _ in ends])
    return next((code for _, code in ends if code), 0)


def _apply(refs: list[str], action: str, *, as_json: bool) -> int:
    """Call the client's method `action` for every job, also after errors. Return the exit code of
    the first error."""
    from rota.cli.output.console import print_json
    from rota.cli.output.jobs import print_jobs
    from rota.client import Client

    done: list[JobView] = []
    failed = 0
    left = refs[::-1]
    with Client() as rota:
        while left:
            ref = left.pop()
            try:
                try:
                    done.append(getattr(rota, action)(ref))
                except UserError as error:
                    if not _is_array_error(error):
                        raise
                    left += _unfinished_ids(rota, ref)[::-1]
            except UserError as error:
                print_err(str(error))
                failed = failed or error.exit_code
    if as_json:
        print_json([asdict(job) for job in done])
    elif done:
        print_jobs(done, as_json=False)
    return failed


def _array_jobs(rota: Client, name: str) -> list[JobView]:
    """The jobs of the user's newest array with this name, in the order of their indices."""
    user = rota.me()
    found: list[JobView] = []
    before: int | None = None
    while True:
        page = rota.jobs(user=user, word=f"{name}[", before=before, limit=PAGE_SIZE)
        # All jobs of an array have the same time of submission.
        moment = (found or page.jobs)[0].submitted_s if found or page.jobs else 0.0
        same = [job for job in page.jobs if job.submitted_s == moment]
        found += same
        before = page.next
        if before is None or len(same) < len(page.jobs):
            return found[::-1]


def _is_array_error(error: UserError) -> bool:
    """Whether the daemon expected one job and got the name of an array."""
    return error.code == "array"


def _unfinished_ids(rota: Client, name: str) -> list[str]:
    """The ids of the jobs of an array that have not ended."""
    from rota.wire.job_view import LIVE_STATES

    unfinished = [job.id for job in _array_jobs(rota, name) if job.state in LIVE_STATES]
    if not unfinished:
        raise UserError(f"all jobs of '{shown(name)}' have ended", "'rota show' lists them")
    return unfinished


def _for_each_job(rota: Client, ref: str, *, action: Callable[[str], T]) -> list[T]:
    """The results of an action on one job, or on every job of an array."""
    try:
        return [action(ref)]
    except UserError as error:
        if not _is_array_error(error):
            raise
    return [action(job.id) for job in _array_jobs(rota, ref)]


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
