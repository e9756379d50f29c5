"""`rota policy`: which policies there are, what they take, and what they would decide."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rota.cli.output.lines import say
from rota.errors import UserError

if TYPE_CHECKING:
    from rota.core.policy import Policy

app = typer.Typer(help="List, explain and question policies.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Spec = Annotated[str, typer.Argument(metavar="NAME[:PARAM=VALUE,...]", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """All policies, with their parameters."""
    from rota.cli.output.json import say_json
    from rota.cli.output.table import Column, say_table
    from rota.policies.parameters import parameters
    from rota.policies.registry import find, names

    known = {name: find(name) for name in names()}
    if as_json:
        say_json([_described(name, kind) for name, kind in known.items()])
        return
    summaries = tuple(_text(kind).partition("\n")[0] for kind in known.values())
    taken = tuple(
        ", ".join(each.name for each in parameters(kind)) or "none" for kind in known.values()
    )
    say_table(
        [
            Column("policy", tuple(known), is_number=False),
            Column("parameters", taken, is_number=False),
            Column("what it does", summaries, is_number=False),
        ]
    )


@app.command()
def show(name: Name, *, as_json: AsJson = False) -> None:
    """What a policy does, and its parameters. NAME may be ./file.py:Class."""
    from rota.cli.output.json import say_json
    from rota.policies.parameters import parameters
    from rota.policies.registry import find

    kind = find(name)
    if as_json:
        say_json(_described(name, kind))
        return
    say(f"{name}: {_text(kind)}")
    taken = [f"  {each}" for each in parameters(kind)]
    say("\n".join(["", "Parameters:", *taken] if taken else ["", "It takes no parameters."]))


@app.command()
def decide(name: Spec) -> None:
    """Answer every line of stdin, a case in JSON, with a line: the GPUs of each job.

    elastic-fifo answers {"gpus": 8, "jobs": [{"name": "a", "min": 1, "max": 4}]} with {"a": 4}.
    0 means that the job waits.
    """
    from rota.policies.registry import parse

    if sys.stdin is None:
        raise UserError("standard input is closed", "decide reads cases from it")
    for answer in _answers(parse(name), sys.stdin.buffer):
        say(answer)


def _described(name: str, kind: type[Policy]) -> dict[str, object]:
    from rota.policies.parameters import parameters

    taken = [
        {"name": each.name, "default": each.default, "allowed": each.allowed}
        for each in parameters(kind)
    ]
    return {"name": name, "description": _text(kind), "parameters": taken}


def _text(kind: type[Policy]) -> str:
    return inspect.getdoc(kind) or "(its class has no docstring)"


def _answers(policy: Policy, lines: Iterable[bytes]) -> Iterable[str]:
    from rota.policies.cases import decide_case

    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            answer = decide_case(policy, _read(line))
        except UserError as error:
            # The place comes first; what is wrong with which field follows.
            joint = ", " if error.message.startswith("field") else ": "
            raise UserError(f"line {number}{joint}{error.message}", error.hint) from error
        yield json.dumps(answer, allow_nan=False)


def _read(line: bytes) -> object:
    try:
        return json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise UserError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg.lower()} at column {error.colno}") from None
    except ValueError as error:
        raise UserError(f"not JSON: {error}") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
