"""The entry point `rota`: runs one command and turns every error into one line and an exit code.

0    success
1    the command failed, for example because no daemon answers, or the output was closed
2    wrong input: a flag, file, row, policy or parameter
130  interrupted

Imports that take time are inside `run`, which handles an interrupt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from io import TextIOWrapper
from typing import TYPE_CHECKING, cast

from rota.cli.output.console import print_err

if TYPE_CHECKING:
    import typer
    from typer.exceptions import TyperException

FAILED = 1
INTERRUPTED = 130
COMPLETION_VARIABLE = "_ROTA_COMPLETE"
"""Set by the shell script that `rota completion` prints."""


def main() -> None:
    try:
        code = _main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _main() -> int:
    if sys.stderr is None:
        # Otherwise the next opened file gets descriptor 2, and the warnings of libraries.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        print_err("cannot write the output: standard output is closed")
        return FAILED
    # A terminal without Unicode shows a question mark instead of a traceback.
    cast("TextIOWrapper", sys.stdout).reconfigure(errors="replace")
    code = run(sys.argv[1:])
    # Python flushes the buffers again at exit. After a failed flush, let that write go nowhere.
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            code = code or FAILED
    return code


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED
    except OSError as error:
        # An error of opening a file has a name; an error of writing the output has none.
        what = error.filename or "cannot write the output"
        print_err(f"{what}: {error.strerror or error}")
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
        # A copied context, so that --context of this command does not apply to the next one.
        code = copy_context().run(
            app, args=list(arguments) or ["--help"], prog_name="rota", standalone_mode=False
        )
    except RotaError as error:
        print_err(str(error))
        return error.exit_code
    except TyperException as error:
        print_err(_usage(error, arguments))
        return error.exit_code
    return code if isinstance(code, int) else 0


def _usage(error: TyperException, arguments: Sequence[str]) -> str:
    """The message of an error that Typer found, in the format of rota's own errors."""
    message = error.format_message().strip().removesuffix(".")
    sentence = message.replace(". Did you mean", ", did you mean")
    similar = cast("Sequence[str]", getattr(error, "possibilities", None) or ())
    if similar:
        sentence = f"{error.message}, did you mean '{similar[0]}'?"
    # The class of errors that have `ctx` has no public name in Typer.
    context = cast("typer.Context | None", getattr(error, "ctx", None))
    command = context.command_path if context else _called_command(arguments)
    hint = "" if sentence.endswith("?") else f"; see '{command} --help'"
    return f"{sentence[:1].lower()}{sentence[1:]}{hint}"


def _called_command(arguments: Sequence[str]) -> str:
    """The name of the called command, for errors that have no `ctx`."""
    from rota.cli.app import NOUNS, VERBS

    first = arguments[0] if arguments else ""
    is_known = first in NOUNS or any(first in verbs for verbs in VERBS.values())
    return f"rota {first}" if is_known else "rota"


if __name__ == "__main__":
    main()
