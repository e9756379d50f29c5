"""The command line: `rota-trainer run [OPTION...] -- PROGRAM [ARGUMENT...]`."""

from __future__ import annotations

import argparse
import re
import sys

from rota_trainer.progress.csv_file import CsvFile
from rota_trainer.progress.patterns import Pattern
from rota_trainer.reporting.environment import apply_umask, read_environment
from rota_trainer.version import VERSION
from rota_trainer.wrapper import WrapperOptions, run

EXAMPLE = r"epoch (?P<epoch>\d+)/(?P<epochs>\d+).*loss (?P<loss>[\d.e+-]+)"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.program[:1] == ["--"]:
        del given.program[0]
    if not given.program:
        parser.error("no program given; use: rota-trainer run -- PROGRAM [ARGUMENT...]")
    environment = read_environment()
    apply_umask(environment)
    return run(
        WrapperOptions(
            command=given.program,
            pattern=_pattern(parser, given.progress_regex, from_zero=given.from_zero),
            csv=CsvFile(given.csv) if given.csv else None,
            stop_at_once=given.stop_at_once,
        ),
        environment,
    )


def _pattern(
    parser: argparse.ArgumentParser, text: str | None, *, from_zero: bool
) -> Pattern | None:
    if text is None:
        return None
    try:
        return Pattern(text, from_zero=from_zero)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        parser.error(f"--progress-regex: {error}. Example: {EXAMPLE}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rota-trainer", description="Tools for training programs that run under rota."
    )
    parser.add_argument("--version", action="version", version=f"rota-trainer {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    wrap = commands.add_parser(
        "run",
        help="run a program and report its progress",
        description="Run a program, forward its output, and report its progress to rota.",
    )
    wrap.add_argument(
        "--progress-regex",
        metavar="REGEX",
        help="read progress from the program's output; the named groups epoch, epochs, step and "
        "steps are progress, any other named group is a metric",
    )
    wrap.add_argument(
        "--csv",
        metavar="FILE",
        help="read progress from a CSV file to which the program appends a row after each epoch",
    )
    wrap.add_argument(
        "--from-zero",
        action="store_true",
        help="the program numbers its epochs from 0 (default: from 1)",
    )
    wrap.add_argument(
        "--stop-at-once",
        action="store_true",
        help="send SIGTERM as soon as rota requests a stop (default: after the current epoch)",
    )
    wrap.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM")
    return parser


if __name__ == "__main__":
    sys.exit(main())
