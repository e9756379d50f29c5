"""`rota policy`: lists and describes policies, selects one, and runs one on given cases."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING

from rota.cli import complete
from rota.cli.command import CommandArgument, command
from rota.cli.options import JSON
from rota.cli.output.console import print_err, print_out
from rota.errors import PolicyError, RotaError, shown

if TYPE_CHECKING:
    from rota.core.scheduling.policy_api import Policy
    from rota.policies.parameters import Parameter

HELP = "List, describe, select and try policies."

ANSWER_TIMEOUT_S = 1.0
"""Limit for the daemon's answer where the policy in use is not essential."""

NAME = CommandArgument(
    "name",
    metavar="NAME",
    text="Policy name (default: the policy in use).",
    is_required=False,
    complete=complete.policies,
)
SPEC = CommandArgument(
    "name",
    metavar="NAME[:PARAM=VALUE,...]",
    text="Policy name; see 'rota policy list'.",
    complete=complete.policies,
)


@command("list", JSON)
def list_(*, as_json: bool) -> None:
    """List all policies with their parameters.

    If a daemon answers, a star marks its policy. A policy that cannot be loaded is left out, with
    a warning.
    """
    from rota.cli.output.console import print_json
    from rota.cli.output.table import Column, print_table
    from rota.policies.parameters import parameters

    known = _loadable()
    used = _name_in_use()
    if as_json:
        print_json(
            [{**_described(name, kind), "in_use": name == used} for name, kind in known.items()]
        )
        return
    names = tuple(f"{name} *" if name == used else name for name in known)
    summaries = tuple(_summary(kind) for kind in known.values())
    taken = tuple(
        ", ".join(each.name for each in parameters(kind)) or "none" for kind in known.values()
    )
    print_table(
        [
            Column("name", names, is_number=False),
            Column("parameters", taken, is_number=False),
            Column("description", summaries, is_number=False),
        ]
    )


@command("show", NAME, JSON)
def show(*, name: str | None, as_json: bool) -> None:
    """Describe a policy and its parameters. NAME may be ./file.py:Class.

    Without NAME, describe the daemon's policy with its parameters.
    """
    from rota.cli.output.console import print_json
    from rota.policies.parameters import parameters
    from rota.policies.registry import find, parse

    if name is None:
        name = _in_use()
        kind = type(parse(name))
    else:
        kind = find(name)
    if as_json:
        print_json(_described(name, kind))
        return
    print_out(f"{name}: {_text(kind)}")
    taken = [f"  {each}" for each in parameters(kind)]
    print_out("\n".join(["", "Parameters:", *taken] if taken else ["", "No parameters."]))


@command("set", SPEC, JSON)
def set_(*, name: str, as_json: bool) -> None:
    """Change the daemon's policy. The change outlives a restart of the daemon."""
    from rota.cli.output.console import print_json
    from rota.client import Client
    from rota.policies.registry import parse

    parse(name)
    with Client() as rota:
        used = rota.set_policy(name)
    if as_json:
        print_json({"policy": used})
    else:
        print_out(f"policy set to {used}")


@command("decide", SPEC)
def decide(*, name: str) -> None:
    """Run a policy on cases from stdin and print the GPUs per job.

    A case is one line of JSON.

    For {"gpus": 8, "jobs": [{"name": "a", "min": 1, "max": 4}]} elastic-fifo prints {"a": 4}.
    0 means that the job waits.
    """
    from rota.cli.cases import print_answers
    from rota.policies.decide_case import decide_case
    from rota.policies.registry import parse

    policy = parse(name)
    print_answers(lambda case: decide_case(policy, case))


def _in_use() -> str:
    from rota.client import Client

    with Client() as rota:
        return rota.policy()


def _name_in_use() -> str:
    """The daemon's policy without its parameters; empty if no daemon answers."""
    from rota.client import Client

    try:
        with Client(answer_s=ANSWER_TIMEOUT_S) as rota:
            return rota.policy().partition(":")[0]
    except RotaError:
        return ""


def _loadable() -> dict[str, type[Policy]]:
    """The policies that can be loaded. A broken plugin does not hide the others."""
    from rota.policies.parameters import parameters
    from rota.policies.registry import find, names

    known: dict[str, type[Policy]] = {}
    for name in names():
        try:
            kind = find(name)
            parameters(kind)
        except PolicyError as error:
            print_err(f"left out policy '{shown(name)}': {error}")
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
    """JSON has no infinite numbers, so an infinite default becomes text."""
    from rota.policies.parameters import show

    default = parameter.default
    is_number = isinstance(default, float)
    return show(default) if is_number and not math.isfinite(default) else default


def _text(kind: type[Policy]) -> str:
    return inspect.getdoc(kind) or "(its class has no docstring)"


def _summary(kind: type[Policy]) -> str:
    """The first sentence of the description."""
    paragraph = " ".join(_text(kind).partition("\n\n")[0].split())
    sentence, period, _ = paragraph.partition(". ")
    return f"{sentence}{period}".strip()


COMMANDS = (list_, show, set_, decide)
