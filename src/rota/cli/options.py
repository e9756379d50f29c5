"""Options that many commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli import completing

AsJson = Annotated[bool, typer.Option("--json", help="For programs; the fields are stable.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="CONTEXT",
        help="Another daemon; 'rota context list'.",
        show_default=False,
        autocompletion=completing.contexts,
    ),
]
JobWord = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="An id, its beginning or end, or a name.",
        show_default=False,
        autocompletion=completing.jobs,
    ),
]
JobWords = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Ids, their beginnings or ends, names, or names of arrays.",
        show_default=False,
        autocompletion=completing.jobs,
    ),
]
