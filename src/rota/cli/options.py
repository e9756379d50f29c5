"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli import complete

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable fields.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="CONTEXT",
        help="Context of the other daemon; see 'rota context list'.",
        show_default=False,
        autocompletion=complete.contexts,
    ),
]
JobRef = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Job id, the first or last part of an id, or job name.",
        show_default=False,
        autocompletion=complete.jobs,
    ),
]
JobRefs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Job ids, first or last parts of ids, job names, or array names.",
        show_default=False,
        autocompletion=complete.jobs,
    ),
]
