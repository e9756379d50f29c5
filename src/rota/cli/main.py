"""The entry point `rota`: runs one command and turns every error into one line and an exit code.

0    success
1    the command failed, for example because no daemon answers, or the output was closed
2    wrong input: a flag, file, row, policy or parameter
130  interrupted

Imports that take time are inside `run`, which handles an interrupt.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from io import TextIOWrapper
from typing import cast

from rota.cli.output.console import print_err, print_error, print_out, use_json_errors

FAILED = 1
WRONG_INPUT = 2
WRONG_NAMES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
"""Errors of a file name that the user gave."""
INTERRUPTED = 130
GC_THRESHOLD = 20_000
"""New objects between two garbage collections. With Python's 700, collections during the imports
take a tenth of the time of a short command."""
COMPLETION_VARIABLE = "_ROTA_COMPLETE"
"""Set by the shell script that `rota completion` prints."""


def main() -> None:
    gc.set_threshold(GC_THRESHOLD)
    try:
        code = _main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    # The process ends: Python need not search all objects for garbage once more.
    gc.freeze()
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
        _print_os_error(f"{what}: {error.strerror or error}")
        return WRONG_INPUT if error.filename and error.errno in WRONG_NAMES else FAILED


def _print_os_error(message: str) -> None:
    from rota.errors import RotaError

    print_error(RotaError(message))


def _run(arguments: Sequence[str]) -> int:
    from rota.cli.app import run_command
    from rota.errors import RotaError

    if shell := os.environ.get(COMPLETION_VARIABLE):
        from rota.cli.complete import suggestions

        print_out(suggestions(arguments, shell=shell))
        return 0
    use_json_errors(is_json=False)
    try:
        # A copied context, so that --context of this command does not apply to the next one.
        return copy_context().run(run_command, arguments)
    except RotaError as error:
        print_error(error)
        return error.exit_code


if __name__ == "__main__":
    main()
