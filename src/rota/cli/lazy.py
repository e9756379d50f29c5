"""A Typer group that imports a command's module when the command runs.

Typer builds every command of a program to run one of them, and parses every value with pydantic.
Both together take longer than all the rest of `rota list`. This group builds one command, and
parses text and numbers itself.
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

SharedOptions = Callable[..., None]

TEXT_TYPES = (str, bool, list[str])
"""Types whose values need no parsing."""
DEFAULT_VERBS = ("list", "show")
"""Verbs that read only and need no argument. A noun without a verb means the first it has."""
HELP_FLAGS = ("-h", "--help")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
NUMBER = re.compile(r"[+-]?[0-9a-z.]{1,40}(?:e[+-]?[0-9]{1,3})?", re.ASCII)
"""Stricter than Python's `float`: no spaces, no underscores, no thousand digits."""


def lazy_group(
    package: str,
    verbs: Mapping[str, tuple[str, ...]],
    *,
    nouns: Mapping[str, str],
    shared: SharedOptions,
    unshared: Collection[str],
) -> type[TyperGroup]:
    """A group class for `typer.Typer(cls=...)`.

    `verbs`: module -> its commands; `nouns`: name -> `module:attribute` of a group. Every command
    also gets the options of `shared`, except the verbs and nouns in `unshared`.
    """
    targets = {verb: f"{package}.{module}:app" for module, each in verbs.items() for verb in each}
    groups = {noun: f"{package}.{target}" for noun, target in nouns.items()}
    sharing = {name: shared for name in (*targets, *groups) if name not in unshared}

    class Group(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = _LazyCommands(targets, groups, sharing=sharing)  # pyright: ignore[reportAttributeAccessIssue]
            _adapt(self)

    return Group


class _LazyCommands(Mapping[str, Any]):
    """The mapping of commands that Typer reads. An item is imported and built on access."""

    def __init__(
        self,
        verbs: Mapping[str, str],
        nouns: Mapping[str, str],
        *,
        sharing: Mapping[str, SharedOptions],
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
            command: Any = get_command(_without_rich(_imported(self._nouns[name])))
            _add_default_verb(command, name)
        else:
            command = get_command(_single(_imported(self._verbs[name]), name))
        command.name = name
        verbs = getattr(command, "commands", {}).values()
        for each in verbs or (command,):
            each.params += self._shared_parameters(name)
        for each in (command, *verbs):
            _adapt(each)
        return command

    def _shared_parameters(self, name: str) -> list[Any]:
        if name not in self._sharing:
            return []
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command()(self._sharing[name])
        return get_command(single).params


def _imported(target: str) -> typer.Typer:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _single(group: typer.Typer, name: str) -> typer.Typer:
    """An application with one command of the group."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.registered_commands = [
        each
        for each in group.registered_commands
        if (each.name or getattr(each.callback, "__name__", "")) == name
    ]
    return single


def _without_rich(group: typer.Typer) -> typer.Typer:
    """The same group without Typer's own completion and without rich's markup."""
    outer = typer.Typer(add_completion=False, rich_markup_mode=None)
    outer.registered_commands = group.registered_commands
    outer.registered_groups = group.registered_groups
    outer.registered_callback = group.registered_callback
    outer.info = group.info
    return outer


def _add_default_verb(group: Any, name: str) -> None:
    """Let a noun without a verb run its default verb, if it has one."""
    verb = next((each for each in DEFAULT_VERBS if each in group.commands), "")
    if not verb:
        return
    original = group.parse_args

    def parse_args(context: Any, arguments: list[str]) -> list[str]:
        has_verb = any(not each.startswith("-") or each in HELP_FLAGS for each in arguments[:1])
        is_completed = context.resilient_parsing
        return original(context, arguments if has_verb or is_completed else [verb, *arguments])

    group.parse_args = parse_args
    group.epilog = f"'rota {name}' is short for 'rota {name} {verb}'."


def _adapt(command: Any) -> None:
    """Parse the command's values without pydantic, and simplify the help of its arguments."""
    original = command.get_help_option

    def get_help_option(context: Any) -> Any:
        option = original(context)
        _use_fast_parser(option)
        return option

    command.get_help_option = get_help_option
    for parameter in command.params:
        _use_fast_parser(parameter)
        if parameter.param_type_name == "argument":
            _simplify_help(parameter)


def _use_fast_parser(parameter: Any) -> None:
    """Replaces a private attribute of Typer. If a later Typer renames the attribute, commands
    start slower and behave the same."""
    if getattr(parameter, "type_descriptor", None) and hasattr(parameter, "_runtime_param"):
        parameter._runtime_param = _FastParser()


def _simplify_help(argument: Any) -> None:
    """Show an argument's name and help text, without its Python type."""
    name = argument.metavar or argument.name.upper()

    def get_usage_pieces(_: object) -> list[str]:
        return [name if argument.required else f"[{name}]"]

    def get_help_record(_: object) -> tuple[str, str]:
        return name, argument.help or ""

    argument.get_usage_pieces = get_usage_pieces
    argument.get_help_record = get_help_record


class _FastParser:
    """Parses text and numbers; Typer parses all other types."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if kind in TEXT_TYPES:
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
