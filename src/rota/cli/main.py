"""The `rota` command: turns every mistake into one line and an exit code.

0    done
1    it could not be done now, or whoever read the output went away
2    what was asked cannot be done as asked: a wrong flag, file, row, policy or parameter
130  interrupted

Whatever takes time to load is imported within `run`, where an interrupt is expected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from io import TextIOWrapper
from typing import TYPE_CHECKING, cast

from rota.cli.output.lines import complain

if TYPE_CHECKING:
    import typer
    from typer.exceptions import TyperException

FAILED = 1
INTERRUPTED = 130
COMPLETION_VARIABLE = "_ROTA_COMPLETE"
"""Set by the script of `rota completion`."""


def main() -> None:
    try:
        code = _main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _main() -> int:
    if sys.stderr is None:
        # Or the next file to be opened would take its place, and get the warnings of libraries.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        complain("cannot write the output: standard output is closed")
        return FAILED
    # A terminal without Unicode shows a question mark rather than a traceback.
    cast("TextIOWrapper", sys.stdout).reconfigure(errors="replace")
    code = run(sys.argv[1:])
    # What could not be written is still in the buffers, and Python would try it again at its end.
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            code = code or FAILED
    return code


def run(arguments: Sequence[str]) -> int:
    """The exit code of one command."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED
    except OSError as error:
        # What is opened has a name; what has none is the output.
        what = error.filename or "cannot write the output"
        complain(f"{what}: {error.strerror or error}")
        return FAILED


def _run(arguments: Sequence[str]) -> int:
    from typer.exceptions import TyperException

    from rota.cli.app import app
    from rota.errors import RotaError

    if COMPLETION_VARIABLE in os.environ:
        from typer.completion import (
            completion_init,  # pyright: ignore[reportPrivateImportUsage]
        )

        completion_init()
    try:
        # What one command was told, such as its context, is not for the next.
        code = copy_context().run(
            app, args=list(arguments) or ["--help"], prog_name="rota", standalone_mode=False
        )
    except RotaError as error:
        complain(str(error))
        return error.exit_code
    except TyperException as error:
        complain(_usage(error, arguments))
        return error.exit_code
    return code if isinstance(code, int) else 0


def _usage(error: TyperException, arguments: Sequence[str]) -> str:
    """A complaint about the command line itself, in the manner of our own."""
    message = error.format_message().strip().removesuffix(".")
    sentence = message.replace(". Did you mean", ", did you mean")
    nearly = cast("Sequence[str]", getattr(error, "possibilities", None) or ())
    if nearly:
        sentence = f"{error.message}, did you mean '{nearly[0]}'?"
    # Typer gives the class of errors that know their command no public name.
    context = cast("typer.Context | None", getattr(error, "ctx", None))
    command = context.command_path if context else _called(arguments)
    hint = "" if sentence.endswith("?") else f"; '{command} --help' lists what there is"
    return f"{sentence[:1].lower()}{sentence[1:]}{hint}"


def _called(arguments: Sequence[str]) -> str:
    """The command that was called, for errors that do not know it."""
    from rota.cli.app import NOUNS, VERBS

    first = arguments[0] if arguments else ""
    is_known = first in NOUNS or any(first in verbs for verbs in VERBS.values())
    return f"rota {first}" if is_known else "rota"


if __name__ == "__main__":
    main()
