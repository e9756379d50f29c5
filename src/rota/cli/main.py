"""The `rota` command: gathers the nouns, and turns every mistake into one line and an exit code.

0    done
1    it could not be done now, or whoever read the output went away
2    what was asked cannot be done as asked: a wrong flag, file, row, policy or parameter
130  interrupted
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import cast

import typer
from typer.exceptions import TyperException

from rota.cli import policy, simulate, store
from rota.cli.output.lines import complain
from rota.errors import RotaError

INTERRUPTED = 130

app = typer.Typer(
    name="rota",
    help="Shares a lab's GPUs between the people who train on them.",
    epilog="Exit codes: 0 done, 1 could not be done, 2 wrong input, 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(simulate.app)
app.add_typer(policy.app, name="policy")
app.add_typer(store.app, name="store")


@app.callback()
def rota() -> None:
    """Makes a group of it, however few commands there are."""


def main() -> None:
    # A terminal without Unicode shows a question mark rather than a traceback.
    cast("TextIOWrapper", sys.stdout).reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code of one command."""
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="rota", standalone_mode=False)
    except RotaError as error:
        complain(str(error))
        return error.exit_code
    except TyperException as error:
        complain(_usage(error.format_message()))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _usage(message: str) -> str:
    """A complaint about the command line itself, in the manner of our own."""
    sentence = message.strip().removesuffix(".").replace(". Did you mean", ", did you mean")
    hint = "" if sentence.endswith("?") else "; 'rota --help' lists what there is"
    return f"{sentence[:1].lower()}{sentence[1:]}{hint}"
