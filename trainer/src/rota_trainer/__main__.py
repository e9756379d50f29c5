"""`rota-trainer run [OPTION...] -- PROGRAM [ARGUMENT...]`"""

from __future__ import annotations

import argparse
import re
import sys

from rota_trainer.csv_file import CsvFile
from rota_trainer.patterns import Pattern
from rota_trainer.place import find_place, take_umask
from rota_trainer.version import VERSION
from rota_trainer.wrapper import Wish, run

EXAMPLE = r"epoch (?P<epoch>\d+)/(?P<epochs>\d+).*loss (?P<loss>[\d.e+-]+)"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.program[:1] == ["--"]:
        del given.program[0]
    if not given.program:
        parser.error("say what to run: rota-trainer run -- PROGRAM [ARGUMENT...]")
    place = find_place()
    take_umask(place)
    return run(
        Wish(
            command=given.program,
            pattern=_pattern(parser, given.progress_regex, from_zero=given.from_zero),
            csv=CsvFile(given.csv) if given.csv else None,
            stop_at_once=given.stop_at_once,
        ),
        place,
    )


def _pattern(
    parser: argparse.ArgumentParser, text: str | None, *, from_zero: bool
) -> Pattern | None:
    if text is None:
        return None
    try:
        return Pattern(text, from_zero=from_zero)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        parser.error(f"--progress-regex: {error}. An example: {EXAMPLE}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rota-trainer", description="For programs that train.")
    parser.add_argument("--version", action="version", version=f"rota-trainer {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    wrap = commands.add_parser(
        "run",
        help="run a program and report its progress",
        description="Runs a program, passes its output on, and reports its progress to rota.",
    )
    wrap.add_argument(
        "--progress-regex",
        metavar="REGEX",
        help="for the lines it prints: groups epoch, epochs, step, steps; any other is a metric",
    )
    wrap.add_argument("--csv", metavar="FILE", help="a CSV that it appends a row to for each epoch")
    wrap.add_argument("--from-zero", action="store_true", help="its first epoch has number 0")
    wrap.add_argument(
        "--stop-at-once",
        action="store_true",
        help="when rota asks to stop: SIGTERM at once, not after the epoch",
    )
    wrap.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM")
    return parser


if __name__ == "__main__":
    sys.exit(main())
