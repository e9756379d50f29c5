"""What is done to jobs that are there: list, show, story, cancel, hold, resize, wait, ..."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import completing
from rota.cli.flags import option
from rota.cli.options import AsJson, JobWord, JobWords, To
from rota.cli.output.lines import complain, say
from rota.errors import UserError, meant, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client import Client
    from rota.wire.jobs import JobView

app = typer.Typer()

StateWords = Annotated[
    list[str] | None,
    option(
        "--state",
        "-s",
        metavar="STATE",
        words="Only in this state; repeatable.",
        complete=completing.states,
    ),
]
NO_JOBS = "no such jobs; 'rota submit -- COMMAND' makes one"
NO_JOBS_OF_YOURS = "you have no jobs; 'rota list --all' shows everybody's"

MOST_JOBS = 100_000


@app.command(name="list")
def list_jobs(
    *,
    everybody: Annotated[bool, typer.Option("--all", "-a", help="Everybody's jobs.")] = False,
    user: Annotated[str, option("--user", "-u", metavar="NAME", words="That user's jobs.")] = "",
    states: StateWords = None,
    project: Annotated[str, option("--project", metavar="NAME", words="Only for this one.")] = "",
    limit: Annotated[int, option("--limit", metavar="N", words="At most so many; else 100.")] = 100,
    watches: Annotated[bool, typer.Option("--watch", help="Keep the table up to date.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show jobs, the newest first. They are your own, unless you ask for more."""
    from rota.cli.output.jobs import say_jobs
    from rota.client import Client

    if watches and as_json:
        raise UserError("--watch draws a table", "leave out --watch or --json")
    if not 1 <= limit <= MOST_JOBS:
        raise UserError(f"--limit {limit} is out of bounds", f"use 1 to {MOST_JOBS}")
    _check_states(states or [])
    with Client() as rota:
        owner = user or ("" if everybody else rota.me())

        def fetch() -> list[JobView]:
            return _fetch(rota, owner, states=states or [], project=project, limit=limit)

        if watches:
            _watch(rota, fetch)
            return
        found = fetch()
        if not found and not as_json:
            complain(NO_JOBS if everybody or user or states or project else NO_JOBS_OF_YOURS)
        else:
            say_jobs(found, as_json=as_json)


def _check_states(words: list[str]) -> None:
    from rota.wire.jobs import STATES

    for word in words:
        if word not in STATES:
            hint = meant(word, STATES) or f"there are {', '.join(STATES)}"
            raise UserError(f"no state '{shown(word)}'", hint)


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
            limit=min(1000, limit - len(found)),
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


@app.command()
def show(job: JobWord, *, as_json: AsJson = False) -> None:
    """Show all about a job: what it runs, where, why it waits. Of an array, its jobs."""
    from rota.cli.arrays import array, is_array
    from rota.cli.output.details import say_details
    from rota.cli.output.jobs import say_jobs
    from rota.cli.output.json import say_json
    from rota.client import Client

    with Client() as rota:
        try:
            details = rota.show(job)
        except UserError as error:
            if not is_array(error):
                raise
            say_jobs(array(rota, job), as_json=as_json)
            return
    if as_json:
        say_json(asdict(details))
    else:
        say_details(details)


@app.command()
def story(job: JobWord, *, as_json: AsJson = False) -> None:
    """Show what happened to a job, when and why."""
    from rota.cli.output.details import say_story
    from rota.cli.output.json import say_json
    from rota.client import Client

    with Client() as rota:
        entries = rota.story(job)
    if as_json:
        say_json([asdict(entry) for entry in entries])
    else:
        say_story(entries)


@app.command()
def cancel(jobs: JobWords, *, as_json: AsJson = False) -> None:
    """End jobs for good. What runs is asked to stop, and killed after its grace period."""
    _each(jobs, "cancel", as_json=as_json)


@app.command()
def hold(jobs: JobWords, *, as_json: AsJson = False) -> None:
    """Keep jobs from running. One that runs is stopped, and starts again when released."""
    _each(jobs, "hold", as_json=as_json)


@app.command()
def release(jobs: JobWords, *, as_json: AsJson = False) -> None:
    """Let held jobs run."""
    _each(jobs, "release", as_json=as_json)


@app.command()
def resize(
    job: JobWord,
    workers: Annotated[str, typer.Argument(metavar="N|auto", help="How many workers.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Set how many workers an elastic job has. With 'auto' the policy decides again."""
    from rota.cli.output.jobs import say_jobs
    from rota.cli.output.json import say_json
    from rota.client import Client

    if workers != "auto" and not (workers.isascii() and workers.isdecimal() and int(workers)):
        raise UserError(f"'{shown(workers)}' is no number of workers", "use 1, 2, ... or auto")
    with Client() as rota:
        resized = rota.resize(job, None if workers == "auto" else int(workers))
    if as_json:
        say_json(asdict(resized))
    else:
        say_jobs([resized], as_json=False)


@app.command()
def resubmit(jobs: JobWords, *, to: To = "", as_json: AsJson = False) -> None:
    """Submit the same again, as new jobs. With --to they go on at another daemon instead: each is
    cancelled here once it is there."""
    from rota.cli.output.json import say_json
    from rota.client import Client

    with Client() as rota:
        ids = _moved(rota, jobs, to=to) if to else [rota.resubmit(job) for job in jobs]
    if as_json:
        say_json({"ids": ids})
    else:
        say("\n".join(ids))


def _moved(rota: Client, jobs: list[str], *, to: str) -> list[str]:
    from rota.client import Client
    from rota.client.moving import move

    with Client(context=to) as there:
        return [move(rota, there, job=job, to=to) for job in jobs]


@app.command()
def wait(jobs: JobWords, *, as_json: AsJson = False) -> None:
    """Wait until jobs are over. The exit code is that of the first that failed."""
    from rota.cli.arrays import for_all
    from rota.cli.ends import end
    from rota.cli.output.json import say_json
    from rota.client import Client

    with Client() as rota:
        ends = [each for job in jobs for each in for_all(rota, job, deed=lambda w: end(rota, w))]
    if as_json:
        say_json([asdict(job) for job, _ in ends])
    raise typer.Exit(next((code for _, code in ends if code), 0))


def _each(words: list[str], deed: str, *, as_json: bool) -> None:
    """All of them, even if some cannot be: the exit code is then that of the first error."""
    from rota.cli.arrays import expanded, is_array
    from rota.cli.output.jobs import say_jobs
    from rota.cli.output.json import say_json
    from rota.client import Client

    done: list[JobView] = []
    failed = 0
    left = words[::-1]
    with Client() as rota:
        while left:
            word = left.pop()
            try:
                try:
                    done.append(getattr(rota, deed)(word))
                except UserError as error:
                    if not is_array(error):
                        raise
                    left += expanded(rota, word)[::-1]
            except UserError as error:
                complain(str(error))
                failed = failed or error.exit_code
    if as_json:
        say_json([asdict(job) for job in done])
    elif done:
        say_jobs(done, as_json=False)
    if failed:
        raise typer.Exit(failed)
