"""Gathers the nouns of the command line. `rota.cli.main` loads it once Ctrl-C is in good hands.

A module is loaded when one of its commands is called, so that each costs its own time only.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rota import __version__
from rota.cli import completing
from rota.cli.lazy import lazy_group
from rota.cli.output.lines import say

VERBS = {
    "submit": ("submit",),
    "jobs": ("list", "show", "story", "cancel", "hold", "release", "resize", "resubmit", "wait"),
    "logs": ("logs",),
    "enter": ("exec", "shell", "port-forward"),
    "profile": ("profile",),
    "report": ("report",),
    "top": ("top",),
    "up": ("up",),
    "box": ("status", "down"),
    "simulate": ("simulate",),
    "completion": ("completion",),
}
"""Module -> commands without a noun, in the order of the help."""

NOUNS = {
    "nodes": "box:nodes_app",
    "policy": "policy:app",
    "context": "context:app",
    "token": "token:app",
    "config": "config:app",
    "store": "store:app",
}
"""Noun -> where its verbs are."""

ALONE = frozenset({"up", "simulate", "completion", "context", "store"})
"""They ask no daemon, so that there is none to choose."""


def _ask(name: str) -> None:
    if name:
        from rota.client.find import asked_for

        asked_for.set(name)


Context = Annotated[
    str,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Ask this daemon; 'rota context list'.",
        show_default=False,
        callback=_ask,
        expose_value=False,
        autocompletion=completing.contexts,
    ),
]


def _everywhere(*, _: Context = "") -> None:
    """What commands that ask a daemon have besides their own options."""


app = typer.Typer(
    name="rota",
    cls=lazy_group("rota.cli", VERBS, nouns=NOUNS, shared=_everywhere, alone=ALONE),
    help="Shares a lab's GPUs between the people who train on them.",
    epilog=(
        "Exit codes: 0 done, 1 could not be done, 2 wrong input, 130 interrupted; "
        "'wait' and 'submit --wait' exit as the job did, 'exec' as the command did."
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        say(f"rota {__version__}")
        raise typer.Exit


@app.callback()
def rota(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True),
    ] = False,
    __: Context = "",
) -> None:
    """Makes a group of it, however few commands there are."""
