"""Builds the Typer application from the tables of commands.

`rota.cli.main` imports this module after it has set up the handling of Ctrl-C. A command's module
is imported when the command runs, so that no command pays for the imports of another.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rota import __version__
from rota.cli import complete
from rota.cli.lazy import lazy_group
from rota.cli.output.console import print_out

VERBS = {
    "submit": ("submit",),
    "jobs": (
        *("list", "show", "story", "cancel", "hold", "release", "resize", "resubmit", "wait"),
        "profile",
    ),
    "logs": ("logs",),
    "exec": ("exec", "shell", "port-forward"),
    "report": ("report",),
    "top": ("top",),
    "daemon": ("up", "status", "down"),
    "simulate": ("simulate",),
    "completion": ("completion",),
}
"""Module -> its commands that have no noun, in the order of the help."""

NOUNS = {
    "nodes": "nodes:nodes_app",
    "policy": "policy:app",
    "context": "context:app",
    "token": "token:app",
    "config": "config:app",
    "store": "store:app",
}
"""Noun -> `module:attribute` of the group that holds its verbs."""

WITHOUT_DAEMON = frozenset({"up", "simulate", "completion", "context", "store"})
"""Commands and nouns that contact no daemon, and so take no `--context`."""


def _choose_context(name: str) -> None:
    if name:
        from rota.client.endpoint import requested_context

        requested_context.set(name)


Context = Annotated[
    str,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Use this daemon; see 'rota context list'.",
        show_default=False,
        callback=_choose_context,
        expose_value=False,
        autocompletion=complete.contexts,
    ),
]


def _shared_options(*, _: Context = "") -> None:
    """The options that every command that contacts a daemon has besides its own."""


app = typer.Typer(
    name="rota",
    cls=lazy_group(
        "rota.cli.commands", VERBS, nouns=NOUNS, shared=_shared_options, unshared=WITHOUT_DAEMON
    ),
    help="Schedule training jobs on shared GPUs.",
    epilog=(
        "Exit codes: 0 success, 1 failure, 2 wrong input, 130 interrupted. "
        "'wait' and 'submit --wait' exit with the job's code, 'exec' with the command's."
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_given: bool) -> None:
    if is_given:
        print_out(f"rota {__version__}")
        raise typer.Exit


@app.callback()
def rota(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
    __: Context = "",
) -> None:
    """Makes the application a group and holds the options that come before the command."""
