"""`rota profile`: what a job measured, and what is made of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rota.cli.flags import option
from rota.cli.options import AsJson, JobWord

app = typer.Typer()


@app.command()
def profile(
    job: JobWord,
    *,
    svg: Annotated[str, option("--svg", metavar="FILE", words="Draw it into this file.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show how a job speeds up, and how its training goes."""
    from rota.cli.output.json import say_json
    from rota.cli.output.profile import say_profile
    from rota.client import Client

    with Client() as rota:
        found = rota.profile(job)
    if svg:
        from rota.cli.output.profile_svg import write_svg

        write_svg(found, svg)
    if as_json:
        say_json(asdict(found))
    elif not svg:
        say_profile(found)
