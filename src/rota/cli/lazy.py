"""A group of commands that are loaded when they are called, and parsed without a library for it.

Typer builds every command of a program to run one of them, and checks plain words by pydantic. Both
together take longer than anything that `rota list` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rota.errors import shown

Shared = Callable[..., None]

WORDS = (str, bool, list[str])
"""What a command line gives as it is."""
LOOKS = ("list", "show")
"""Verbs that change nothing and need nothing to be said; the first that a noun has."""
HELPS = ("-h", "--help")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
NUMBER = re.compile(r"[+-]?[0-9a-z.]{1,40}(?:e[+-]?[0-9]{1,3})?", re.ASCII)
"""Less than Python takes for a number: no spaces, no underscores, no thousand digits."""


def lazy_group(
    package: str,
    verbs: Mapping[str, tuple[str, ...]],
    *,
    nouns: Mapping[str, str],
    shared: Shared,
    alone: Collection[str],
) -> type[TyperGroup]:
    """`verbs`: module -> its commands; `nouns`: name -> `module:attribute` of a group. Every
    command has the options of `shared`, too, but for the verbs and nouns that are `alone`."""
    places = {verb: f"{package}.{module}:app" for module, each in verbs.items() for verb in each}
    groups = {noun: f"{package}.{place}" for noun, place in nouns.items()}
    sharing = {name: shared for name in (*places, *groups) if name not in alone}

    class Group(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = _Commands(places, groups, sharing=sharing)  # pyright: ignore[reportAttributeAccessIssue]
            _adapt(self)

    return Group


class _Commands(Mapping[str, Any]):
    """What Typer takes for a dictionary of finished commands."""

    def __init__(
        self, verbs: Mapping[str, str], nouns: Mapping[str, str], *, sharing: Mapping[str, Shared]
    ) -> None:
        self._verbs = verbs
        self._nouns = nouns
        self._sharing = sharing

    def __iter__(self) -> Iterator[str]:
        return iter([*self._verbs, *self._nouns])

    def __len__(self) -> int:
        return len(self._verbs) + len(self._nouns)

    def __contains__(self, name: object) -> bool:
        return name in self._verbs or name in self._nouns

    def __getitem__(self, name: str) -> Any:
        if name in self._nouns:
            command: Any = get_command(_plainly(_found(self._nouns[name])))
            _say_what_there_is(command, name)
        else:
            command = get_command(_only(_found(self._verbs[name]), name))
        command.name = name
        verbs = getattr(command, "commands", {}).values()
        for each in verbs or (command,):
            each.params += self._shared(name)
        for each in (command, *verbs):
            _adapt(each)
        return command

    def _shared(self, name: str) -> list[Any]:
        if name not in self._sharing:
            return []
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command()(self._sharing[name])
        return get_command(single).params


def _found(place: str) -> typer.Typer:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _only(group: typer.Typer, name: str) -> typer.Typer:
    """One command of a group, by itself."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.registered_commands = [
        each
        for each in group.registered_commands
        if (each.name or getattr(each.callback, "__name__", "")) == name
    ]
    return single


def _plainly(group: typer.Typer) -> typer.Typer:
    outer = typer.Typer(add_completion=False, rich_markup_mode=None)
    outer.registered_commands = group.registered_commands
    outer.registered_groups = group.registered_groups
    outer.registered_callback = group.registered_callback
    outer.info = group.info
    return outer


def _say_what_there_is(group: Any, name: str) -> None:
    """What a noun does that is called without a verb, where it has one that only looks."""
    verb = next((each for each in LOOKS if each in group.commands), "")
    if not verb:
        return
    original = group.parse_args

    def parse_args(context: Any, arguments: list[str]) -> list[str]:
        has_verb = any(not each.startswith("-") or each in HELPS for each in arguments[:1])
        is_completed = context.resilient_parsing
        return original(context, arguments if has_verb or is_completed else [verb, *arguments])

    group.parse_args = parse_args
    group.epilog = f"'rota {name}' alone is 'rota {name} {verb}'."


def _adapt(command: Any) -> None:
    original = command.get_help_option

    def get_help_option(context: Any) -> Any:
        option = original(context)
        _ease(option)
        return option

    command.get_help_option = get_help_option
    for parameter in command.params:
        _ease(parameter)
        if parameter.param_type_name == "argument":
            _describe(parameter)


def _ease(parameter: Any) -> None:
    """Where a later Typer calls this otherwise, nothing is lost but the time."""
    if getattr(parameter, "type_descriptor", None) and hasattr(parameter, "_runtime_param"):
        parameter._runtime_param = _Easy()


def _describe(argument: Any) -> None:
    """In the help, an argument has its name and what it is, not the type that Python gives it."""
    name = argument.metavar or argument.name.upper()

    def get_usage_pieces(_: object) -> list[str]:
        return [name if argument.required else f"[{name}]"]

    def get_help_record(_: object) -> tuple[str, str]:
        return name, argument.help or ""

    argument.get_usage_pieces = get_usage_pieces
    argument.get_help_record = get_help_record


class _Easy:
    """Reads words and numbers; all else is built and checked as ever."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if kind in WORDS:
            return value
        if kind in (int, float, list[int]):
            try:
                return _number(value, param.type_descriptor)
            except ValueError as error:
                raise typer.BadParameter(str(error), ctx=ctx, param=param) from None
        from typer._coercion import build_runtime_param  # pyright: ignore[reportPrivateUsage]

        return build_runtime_param(param.type_descriptor).coerce(value, param=param, ctx=ctx)


def _number(value: Any, descriptor: Any) -> Any:
    kind = descriptor.annotation
    if kind == list[int]:
        return [_int(str(each)) for each in value]
    number = _int(str(value)) if kind is int else _float(str(value))
    least, most = descriptor.parameter_info.min, descriptor.parameter_info.max
    if least is not None and number < least:
        raise ValueError(f"{shown(str(value))} is less than {least:g}")
    if most is not None and number > most:
        raise ValueError(f"{shown(str(value))} is more than {most:g}")
    return number


def _int(word: str) -> int:
    if not INTEGER.fullmatch(word):
        raise ValueError(f"'{shown(word)}' is not a whole number")
    return int(word)


def _float(word: str) -> float:
    try:
        if NUMBER.fullmatch(word):
            return float(word)
    except ValueError:
        pass
    raise ValueError(f"'{shown(word)}' is not a number")
