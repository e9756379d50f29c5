"""`rota config`: which settings hold, and where each came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.config.load import Setting

app = typer.Typer(help="Show the settings that hold here.")


@app.callback()
def config() -> None:
    """Makes a group of it, however few verbs there are."""


@app.command()
def show(
    *,
    has_origin: Annotated[
        bool, typer.Option("--origin", help="With the file or variable each came from.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every setting and, if asked, its origin.

    These are the settings of a daemon that is started here, and of a submit from this folder. A
    daemon that runs already keeps what it was started with.
    """
    from rota.cli.output.settings import say_settings

    say_settings(list(_settings()), has_origin=has_origin, as_json=as_json)


def _settings() -> Iterator[Setting]:
    from rota.client.find import chosen, find
    from rota.config import state_dir
    from rota.config.load import DEFAULT, Setting, Sources, daemon_settings, submit_settings

    def origin(variable: str) -> str:
        return variable if os.environ.get(variable) else DEFAULT

    yield Setting(("home",), str(state_dir()), origin("ROTA_HOME"))
    yield Setting(("url",), str(find()), chosen().origin)
    yield from daemon_settings(Sources(state_dir()))
    for each in submit_settings(Sources(Path.cwd())):
        yield Setting(("submit", *each.place), each.value, each.origin)
