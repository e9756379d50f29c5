"""Options and arguments that several commands have."""

from __future__ import annotations

from rota.cli import complete
from rota.cli.command import CommandArgument, CommandOption, flag, whole

JSON = flag("--json", name="as_json", text="Print JSON with stable fields.")
CONTEXT = CommandOption(
    "--context",
    name="context",
    metavar="NAME",
    text="Use this daemon; see 'rota context list'.",
    parse=str,
    default="",
    complete=complete.contexts,
)
"""Every command that contacts a daemon has this option."""
TO = CommandOption(
    "--to",
    name="to",
    metavar="CONTEXT",
    text="Context of the other daemon; see 'rota context list'.",
    parse=str,
    default="",
    complete=complete.contexts,
)
WORKER = CommandOption(
    "--worker",
    name="worker",
    metavar="N",
    text="Number of the worker (default: the first).",
    parse=whole,
)
JOB = CommandArgument(
    "job",
    metavar="JOB",
    text="Job id, the first or last part of an id, or job name.",
    complete=complete.jobs,
)
JOBS = CommandArgument(
    "jobs",
    metavar="JOB...",
    text="Job ids, first or last parts of ids, job names, or array names.",
    is_repeatable=True,
    complete=complete.jobs,
)
