"""`rota policy`: which policies there are, what they take, and what they would decide."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rota.cli.options import AsJson
from rota.cli.output.lines import complain, say
from rota.errors import PolicyError, RotaError, UserError, shown, why_not_json

if TYPE_CHECKING:
    from rota.core.policy import Policy
    from rota.policies.parameters import Parameter

app = typer.Typer(help="List, explain, question and choose policies.")

QUICKLY_S = 1.0
"""What a daemon may take to say which policy it uses, where nothing depends on it."""

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Else the one in use.", show_default=False),
]
Spec = Annotated[
    str,
    typer.Argument(
        metavar="NAME[:PARAM=VALUE,...]", help="As in 'rota policy list'.", show_default=False
    ),
]


@app.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """Show all policies with their parameters.

    The one in use, if a daemon answers, has a star. One that cannot be loaded is left out, and
    named.
    """
    from rota.cli.output.json import say_json
    from rota.cli.output.table import Column, say_table
    from rota.policies.parameters import parameters

    known = _loadable()
    used = _name_in_use()
    if as_json:
        say_json(
            [{**_described(name, kind), "in_use": name == used} for name, kind in known.items()]
        )
        return
    names = tuple(f"{name} *" if name == used else name for name in known)
    summaries = tuple(_text(kind).partition("\n")[0] for kind in known.values())
    taken = tuple(
        ", ".join(each.name for each in parameters(kind)) or "none" for kind in known.values()
    )
    say_table(
        [
            Column("policy", names, is_number=False),
            Column("parameters", taken, is_number=False),
            Column("what it does", summaries, is_number=False),
        ]
    )


@app.command()
def show(name: Name = None, *, as_json: AsJson = False) -> None:
    """Show what a policy does, and its parameters. NAME may be ./file.py:Class.

    Without a NAME: the one that the daemon uses, with the parameters it was given.
    """
    from rota.cli.output.json import say_json
    from rota.policies.parameters import parameters
    from rota.policies.registry import find, parse

    if name is None:
        name = _in_use()
        kind = type(parse(name))
    else:
        kind = find(name)
    if as_json:
        say_json(_described(name, kind))
        return
    say(f"{name}: {_text(kind)}")
    taken = [f"  {each}" for each in parameters(kind)]
    say("\n".join(["", "Parameters:", *taken] if taken else ["", "It takes no parameters."]))


@app.command("set")
def set_(name: Spec, *, as_json: AsJson = False) -> None:
    """Let another policy decide from now on. It stays after a restart of the daemon."""
    from rota.cli.output.json import say_json
    from rota.client import Client
    from rota.policies.registry import parse

    parse(name)
    with Client() as rota:
        used = rota.set_policy(name)
    if as_json:
        say_json({"policy": used})
    else:
        say(f"{used} decides from now on")


@app.command()
def decide(name: Spec) -> None:
    """Answer each line of stdin, a case, with the GPUs of each job.

    elastic-fifo answers {"gpus": 8, "jobs": [{"name": "a", "min": 1, "max": 4}]} with {"a": 4}.
    0 means that the job waits.
    """
    from rota.policies.registry import parse

    if sys.stdin is None:
        raise UserError("standard input is closed", "decide reads cases from it")
    for answer in _answers(parse(name), sys.stdin.buffer):
        say(answer)


def _in_use() -> str:
    from rota.client import Client

    with Client() as rota:
        return rota.policy()


def _name_in_use() -> str:
    """Without its parameters; nothing where no daemon answers."""
    from rota.client import Client

    try:
        with Client(answer_s=QUICKLY_S) as rota:
            return rota.policy().partition(":")[0]
    except RotaError:
        return ""


def _loadable() -> dict[str, type[Policy]]:
    """Those that work: one broken package of many is no reason to hide the others."""
    from rota.policies.parameters import parameters
    from rota.policies.registry import find, names

    known: dict[str, type[Policy]] = {}
    for name in names():
        try:
            kind = find(name)
            parameters(kind)
        except PolicyError as error:
            complain(f"left out policy '{shown(name)}': {error}")
        else:
            known[name] = kind
    return known


def _described(name: str, kind: type[Policy]) -> dict[str, object]:
    from rota.policies.parameters import parameters

    taken = [
        {"name": each.name, "default": _default(each), "allowed": each.allowed}
        for each in parameters(kind)
    ]
    return {"name": name, "description": _text(kind), "parameters": taken}


def _default(parameter: Parameter) -> object:
    """JSON has no word for infinite, so that such a default is a text."""
    from rota.policies.parameters import show

    default = parameter.default
    is_number = isinstance(default, float)
    return show(default) if is_number and not math.isfinite(default) else default


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
    except (ValueError, RecursionError) as error:
        raise UserError(why_not_json(error)) from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
