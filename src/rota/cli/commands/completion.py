"""`rota completion`: a script that lets a shell complete commands, flags, jobs and nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output.lines import say
from rota.errors import UserError, meant, shown

app = typer.Typer()

SHELLS = ("bash", "zsh", "fish")


@app.command(epilog='Example: eval "$(rota completion bash)" in ~/.bashrc')
def completion(
    shell: Annotated[
        str, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)
    ],
) -> None:
    """Print a script for your shell. With it, Tab completes commands, flags, jobs and nodes."""
    from typer.completion import (
        get_completion_script,  # pyright: ignore[reportPrivateImportUsage]
    )

    if shell not in SHELLS:
        hint = meant(shell, SHELLS) or f"there are {', '.join(SHELLS)}"
        raise UserError(f"no completion for '{shown(shell)}'", hint)
    script = get_completion_script(prog_name="rota", complete_var="_ROTA_COMPLETE", shell=shell)
    say(script)
