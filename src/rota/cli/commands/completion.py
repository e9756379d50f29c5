"""`rota completion`: prints the script that lets a shell complete rota's commands."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output.console import print_out
from rota.errors import UserError, did_you_mean, shown

app = typer.Typer()

SHELLS = ("bash", "zsh", "fish")


@app.command(epilog='Example: eval "$(rota completion bash)" in ~/.bashrc')
def completion(
    shell: Annotated[
        str, typer.Argument(metavar="bash|zsh|fish", help="Name of the shell.", show_default=False)
    ],
) -> None:
    """Print a completion script for a shell. It completes commands, flags, jobs and nodes."""
    from typer.completion import (
        get_completion_script,  # pyright: ignore[reportPrivateImportUsage]
    )

    if shell not in SHELLS:
        hint = did_you_mean(shell, SHELLS) or f"supported shells: {', '.join(SHELLS)}"
        raise UserError(f"no completion for '{shown(shell)}'", hint)
    script = get_completion_script(prog_name="rota", complete_var="_ROTA_COMPLETE", shell=shell)
    print_out(script)
