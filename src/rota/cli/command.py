"""Describes a command (its options, arguments and help) and parses the words of a command line.

argparse parses the options. The arguments are assigned here: argparse of Python 3.11 removes a
second `--` from the command of a job, and takes no option after the first of several arguments.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rota.errors import UserError, did_you_mean, shown

Parser = Callable[[str], Any]
"""Parses the text of a value. It raises `ValueError` with a message for the user."""
Completer = Callable[[str], "list[tuple[str, str]]"]
"""Returns the words, with descriptions, that begin with the given text."""

OPTIONS = "Options"
HELP_NAMES = ("-h", "--help")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
NUMBER = re.compile(r"[+-]?[0-9a-z.]{1,40}(?:e[+-]?[0-9]{1,3})?", re.ASCII)
"""Stricter than Python's `float`: no spaces, no underscores, no thousand digits."""


class CommandOption:
    """An option of a command. `parse` is None for a flag, which takes no value and means `const`.

    `name` is the name of the parameter of the command's function. `group` is its heading in the
    help.
    """

    def __init__(
        self,
        *flags: str,
        name: str,
        text: str,
        metavar: str = "",
        parse: Parser | None = None,
        const: bool = True,
        default: Any = None,
        is_repeatable: bool = False,
        is_required: bool = False,
        group: str = OPTIONS,
        complete: Completer | None = None,
    ) -> None:
        self.flags = flags
        self.name = name
        self.text = text
        self.metavar = metavar
        self.parse = parse
        self.const = const
        self.default = default
        self.is_repeatable = is_repeatable
        self.is_required = is_required
        self.group = group
        self.complete = complete


class CommandArgument:
    """A word of a command line that is no option, or, if `is_repeatable`, all words that remain.
    `is_program`: the words are a command to run with its own options: no option of rota follows the
    first word, and the words may be other bytes than UTF-8 text."""

    def __init__(
        self,
        name: str,
        *,
        metavar: str,
        text: str,
        parse: Parser = str,
        is_repeatable: bool = False,
        is_required: bool = True,
        is_program: bool = False,
        complete: Completer | None = None,
    ) -> None:
        self.name = name
        self.metavar = metavar
        self.is_program = is_program
        self.may_be_bytes = is_program or parse is Path
        self.text = text
        self.parse = parse
        self.is_repeatable = is_repeatable
        self.is_required = is_required
        self.complete = complete


class Command:
    """A command: its name, its parameters, and the function that runs it.

    The function takes every parameter by name and returns an exit code, or None for 0. Its
    docstring is the help text; the first sentence is the summary in lists of commands.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., int | None],
        *,
        parameters: Sequence[CommandOption | CommandArgument],
        epilog: str,
    ) -> None:
        self.name = name
        self.run = run
        self.epilog = epilog
        self.options = [each for each in parameters if isinstance(each, CommandOption)]
        self.arguments = [each for each in parameters if isinstance(each, CommandArgument)]

    def with_option(self, option: CommandOption) -> Command:
        """The same command with one more option."""
        parameters = [*self.arguments, *self.options, option]
        return Command(self.name, self.run, parameters=parameters, epilog=self.epilog)

    @property
    def help(self) -> str:
        return "\n".join(line.strip() for line in (self.run.__doc__ or "").strip().split("\n"))

    @property
    def summary(self) -> str:
        """The first sentence of the help."""
        paragraph = " ".join(self.help.partition("\n\n")[0].split())
        return paragraph.partition(". ")[0].removesuffix(".") + "."


def command(
    name: str, *parameters: CommandOption | CommandArgument, epilog: str = ""
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a command of a function."""
    return lambda function: Command(name, function, parameters=parameters, epilog=epilog)


def flag(*flags: str, name: str, text: str, const: bool = True) -> CommandOption:
    """An option without a value, that is `const` if given and not `const` otherwise."""
    return CommandOption(*flags, name=name, text=text, const=const, default=not const)


def whole(word: str) -> int:
    """Parse a whole number."""
    if not INTEGER.fullmatch(word):
        raise ValueError(f"'{shown(word)}' is not a whole number")
    return int(word)


def decimal(word: str) -> float:
    try:
        if NUMBER.fullmatch(word):
            return float(word)
    except ValueError:
        pass
    raise ValueError(f"'{shown(word)}' is not a number")


class UsageError(UserError):
    """A command line that does not fit the command. `path` is the command, such as `rota list`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message, "" if message.endswith("?") else f"see '{path} --help'")


def unknown_command(path: str, word: str, *, known: Sequence[str]) -> UsageError:
    """The error of an unknown command, with the most similar known one."""
    return _unknown(path, f"command '{shown(word)}'", hint=did_you_mean(word[:80], known))


def unknown_option(path: str, word: str, *, known: Sequence[str]) -> UsageError:
    return _unknown(path, f"option: {shown(word)}", hint=did_you_mean(word[:80], known))


def _unknown(path: str, what: str, *, hint: str) -> UsageError:
    return UsageError(path, f"no such {what}{', ' if hint else ''}{hint}")


def is_help(command: Command, words: Sequence[str]) -> bool:
    """Whether the user asks for help. The words of a program to run are not rota's."""
    own, _ = _split(command, words)
    return any(each in HELP_NAMES for each in own)


def parse(command: Command, words: Sequence[str], *, path: str) -> dict[str, Any]:
    """Return the values of all parameters by name."""
    own, after_dashes = _split(command, words)
    try:
        given, rest = _option_parser(command.options).parse_known_args(own)
    except argparse.ArgumentError as error:
        raise _option_error(path, error) from None
    for word in rest:
        if word.startswith("-") and len(word) > 1:
            known = [each for option in command.options for each in option.flags]
            raise unknown_option(path, word.partition("=")[0], known=known)
    values = _assigned(path, command.arguments, words=[*rest, *after_dashes])
    for option in command.options:
        found: list[Any] | None = getattr(given, option.name)
        if found is None and option.is_required:
            raise UsageError(path, f"missing option '{_long(option)}'")
        values[option.name] = option.default if found is None else _value(path, option, found=found)
    return values


def _split(command: Command, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words in which options are searched, and the words after them: those after the first
    `--`, or from the first word of a program to run."""
    begin = program_start(command, words)
    if begin < len(words) and words[begin] == "--":
        return list(words[:begin]), list(words[begin + 1 :])
    return list(words[:begin]), list(words[begin:])


def program_start(command: Command, words: Sequence[str]) -> int:
    """The position of the first `--` or of the first word of a program to run; else the number of
    words."""
    takes_value = {
        each: option.parse is not None for option in command.options for each in option.flags
    }
    programs = [place for place, each in enumerate(command.arguments) if each.is_program]
    n_before = programs[0] if programs else len(words)
    is_value = False
    for place, word in enumerate(words):
        if word == "--":
            return place
        if is_value:
            is_value = False
        elif word.startswith("--"):
            is_value = takes_value.get(word, False)
        elif word.startswith("-") and len(word) > 1:
            is_value = _needs_next_word(word, takes_value)
        elif n_before:
            n_before -= 1
        else:
            return place
    return len(words)


def _needs_next_word(word: str, takes_value: Mapping[str, bool]) -> bool:
    """Whether the last of the short options in a word, such as `-ab`, has its value in the next
    word. `-n5` holds its value itself."""
    for place, letter in enumerate(word[1:], start=1):
        if takes_value.get(f"-{letter}", False):
            return place == len(word) - 1
    return False


def _option_parser(options: Sequence[CommandOption]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
        # A fixed width: argparse would import shutil to find the width of the terminal.
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=80),
    )
    for each in options:
        if each.parse is None:
            parser.add_argument(
                *each.flags, dest=each.name, action="append_const", const=each.const
            )
        else:
            parser.add_argument(*each.flags, dest=each.name, action="append")
    return parser


def _option_error(path: str, error: argparse.ArgumentError) -> UsageError:
    flag = max((error.argument_name or "").split("/"), key=len)
    if error.message.startswith("expected"):
        return UsageError(path, f"option '{flag}' requires a value (write {flag}=VALUE)")
    return UsageError(path, f"option '{flag}' takes no value")


def _long(option: CommandOption) -> str:
    return max(option.flags, key=len)


def _value(path: str, option: CommandOption, *, found: list[Any]) -> Any:
    read = option.parse
    if read is None:
        return found[-1]
    for each in found:
        if not each:
            # Often the value is a variable of a shell script that is not set.
            raise UsageError(path, f"option '{_long(option)}' has an empty value")
        if read is not Path:
            _require_text(path, each, what=f"value for '{_long(option)}'")
    try:
        values = [read(each) for each in found]
    except ValueError as error:
        raise UsageError(path, f"invalid value for '{_long(option)}': {error}") from None
    return values if option.is_repeatable else values[-1]


def _assigned(
    path: str, arguments: Sequence[CommandArgument], *, words: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in arguments:
        if each.is_required and not words:
            raise UsageError(path, f"missing argument '{each.metavar}'")
        for word in words if each.is_repeatable else words[:1]:
            if not each.may_be_bytes:
                _require_text(path, word, what=f"argument '{each.metavar}'")
            if not word and not each.is_program:
                raise UsageError(path, f"argument '{each.metavar}' is empty")
        if each.is_repeatable:
            values[each.name], words = [each.parse(word) for word in words], []
        else:
            values[each.name] = each.parse(words[0]) if words else None
            words = words[1:]
    if words:
        raise UsageError(path, f"unexpected argument '{shown(words[0])}'")
    return values


def _require_text(path: str, word: str, *, what: str) -> None:
    """Refuse a word that was not UTF-8: Python holds its bytes as surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(path, f"invalid {what}: '{shown(word)}' is not UTF-8 text") from None
