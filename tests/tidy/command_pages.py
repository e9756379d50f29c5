"""What the commands generate: the list in docs/reference/cli.md, and docs/reference/commands.md."""

from pathlib import Path

from rota.cli.app import SECTIONS, commands_of
from rota.cli.command import OPTIONS, Command, CommandArgument, CommandOption
from rota.cli.options import CONTEXT
from tests.support.cli_commands import commands, groups
from tests.tidy.tree import ROOT

LIST_PAGE = ROOT / "docs" / "reference" / "cli.md"
PAGE = ROOT / "docs" / "reference" / "commands.md"
BEGIN = "<!-- The list is written by scripts/generate from the commands. -->\n"
END = "<!-- The end of the list. -->\n"
INTRODUCTION = """\
# Commands

<!-- Written by scripts/generate from the commands. Do not edit. -->

Every command and its options, as in `rota COMMAND --help`. [The command line](cli.md) describes
what they have in common. Every command has `--help`, and every command that contacts a daemon also
has `--context NAME`.
"""


def generated_files() -> dict[Path, str]:
    before, _, rest = LIST_PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {LIST_PAGE: f"{before}{BEGIN}\n{command_list()}\n\n{END}{after}", PAGE: page_text()}


def command_list() -> str:
    rows = [
        f"| [`rota {name}`](commands.md#{anchor(name)}) | {each.summary} |"
        for name, each in commands().items()
    ]
    return "\n".join(["| command | description |", "|---|---|", *rows])


def anchor(name: str) -> str:
    return f"rota-{name.replace(' ', '-')}"


def page_text() -> str:
    parts = [INTRODUCTION]
    known = commands()
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            inner = [f"{name} {each.name}" for each in commands_of(name)] if _is_noun(name) else []
            parts += [command_text(each, known[each]) for each in inner or [name]]
    return "\n".join(parts)


def _is_noun(name: str) -> bool:
    return name in groups()


def command_text(name: str, command: Command) -> str:
    usage = " ".join([f"rota {name}", "[OPTIONS]", *map(_usage, command.arguments)])
    lines = [f"### rota {name}", "", "```", usage, "```", "", command.help, ""]
    if command.arguments:
        rows = [f"| `{each.metavar}` | {_cell(each.text)} |" for each in command.arguments]
        lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    for group, options in _by_group(command).items():
        heading = "option" if group == OPTIONS else group.lower()
        rows = [_option_row(each) for each in options]
        lines += [f"| {heading} | meaning |", "|---|---|", *rows, ""]
    if command.epilog:
        lines += [command.epilog, ""]
    return "\n".join(lines)


def _by_group(command: Command) -> dict[str, list[CommandOption]]:
    found: dict[str, list[CommandOption]] = {}
    for each in command.options:
        if each.flags != CONTEXT.flags:
            found.setdefault(each.group, []).append(each)
    return found


def _usage(argument: CommandArgument) -> str:
    return argument.metavar if argument.is_required else f"[{argument.metavar}]"


def _option_row(option: CommandOption) -> str:
    names = sorted(option.flags, key=lambda each: each.startswith("--"))
    name = f"{', '.join(names)} {option.metavar}".rstrip()
    notes = "; required" if option.is_required else "; repeatable" if option.is_repeatable else ""
    return f"| `{_cell(name)}` | {_cell(option.text.removesuffix('.') + notes)}. |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
