"""What `rota cancel`, `hold` and `release` have in common: any number of jobs in one request.

The daemon carries out the request as one event. A word that is only a part
of an id, and jobs that a filter selects, need a confirmation.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rota.cli import complete
from rota.cli.command import CommandArgument, CommandOption, flag
from rota.cli.options import JSON
from rota.cli.output.console import ask, print_err, print_error, print_out
from rota.errors import UserError

if TYPE_CHECKING:
    from rota.client import Client
    from rota.wire.job_changes import ChangedJobs, JobSelection

MAX_ROWS = 50
"""More changed jobs than this are counted, not listed."""
PAST = {"cancel": "cancelled", "hold": "held", "release": "released"}
NAMED_JOBS = CommandArgument(
    "jobs",
    metavar="JOB...",
    text="Job ids, job names, or array names.",
    is_repeatable=True,
    is_required=False,
    complete=complete.jobs,
)
PARAMETERS = (
    NAMED_JOBS,
    flag("--all", name="all_jobs", text="All your jobs that have not ended."),
    CommandOption(
        "--state",
        "-s",
        name="states",
        metavar="STATE",
        text="Your jobs in this state.",
        parse=str,
        is_repeatable=True,
        complete=complete.states,
    ),
    CommandOption(
        "--name",
        "-n",
        name="name",
        metavar="PATTERN",
        text="Your jobs with such a name, as 'sweep-*'.",
        parse=str,
        default="",
    ),
    CommandOption(
        "--user",
        "-u",
        name="user",
        metavar="NAME",
        text="Jobs of this user; for administrators.",
        parse=str,
        default="",
    ),
    flag("--yes", "-y", name="is_sure", text="Do not ask for a confirmation."),
    JSON,
)


def change(
    action: str, *, is_sure: bool, as_json: bool, states: list[str] | None, **values: Any
) -> int:
    """Run the command `action` with the values of its parameters."""
    from rota.client import Client
    from rota.wire.job_changes import ChangedJobs, JobSelection

    selection = JobSelection(**values, states=states or [], partial=is_sure)
    if not selection.jobs and not selection.has_filter:
        hint = f"name jobs, or use --all, --state, --name or --user; see 'rota {action} --help'"
        raise UserError("no job is named", hint)
    with Client() as rota:
        if selection.has_filter and not is_sure:
            found = _confirmed(rota, action, selection=selection)
            if not found:
                print_err("no matching jobs")
                return _print(ChangedJobs([]), action, as_json=as_json)
            selection = JobSelection(jobs=found)
        changed = _sent(rota, action, selection=selection)
    return _print(changed, action, as_json=as_json)


def _confirmed(rota: Client, action: str, *, selection: JobSelection) -> list[str]:
    """The ids of the jobs that a filter selects, after a confirmation. Later jobs that match the
    filter are not part of it."""
    from dataclasses import replace

    found = rota.change_jobs(action, replace(selection, dry_run=True)).jobs
    if not found:
        return []
    counts = Counter(job.state for job in found)
    states = ", ".join(f"{n} {state}" for state, n in counts.items())
    noun = "job" if len(found) == 1 else "jobs"
    _confirm(f"{action} {len(found)} {noun} of {found[0].user} ({states})")
    return [job.id for job in found]


def _sent(rota: Client, action: str, *, selection: JobSelection) -> ChangedJobs:
    """Send the request; ask about each word that is only a part of an id."""
    from dataclasses import replace

    words = list(selection.jobs)
    for _ in range(len(words) + 1):
        try:
            return rota.change_jobs(action, replace(selection, jobs=words))
        except UserError as error:
            job_id = getattr(error, "field", "")
            if error.code != "partial_id" or not job_id:
                raise
            _confirm(f"{error.message}: {action} this job")
            words = [job_id if job_id.startswith(w) or job_id.endswith(w) else w for w in words]
    raise AssertionError


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise UserError(f"not confirmed: {question}", "add --yes")
    if not ask(f"{question}? [y/N] "):
        raise UserError("nothing was changed")


def _print(changed: ChangedJobs, action: str, *, as_json: bool) -> int:
    from rota.cli.output.jobs import print_jobs
    from rota.client.http import AnswerError

    for problem in changed.problems:
        print_error(AnswerError(problem.code, problem.message, problem.hint))
    if not as_json and len(changed.jobs) > MAX_ROWS:
        print_out(f"{PAST[action]} {len(changed.jobs)} jobs")
    elif as_json or changed.jobs:
        print_jobs(changed.jobs, as_json=as_json)
    if changed.n_ended:
        noun = "job" if changed.n_ended == 1 else "jobs"
        print_err(f"{changed.n_ended} {noun} had ended before")
    return 2 if changed.problems else 0
