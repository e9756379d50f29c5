"""Reads and runs the commands of documentation pages.

A `console` block holds commands after `$ ` and their output. Each line of output must appear in the
real output, in this order; `...` stands for any text. A command must succeed, unless the next
one is `echo $?`. A code block whose first line is a comment with a file name (`# train.py`) becomes
that file. A block after the comment `<!-- not run: needs ... -->` is only parsed.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.cli.app import MODULE_OF, NOUNS, command_named, commands_of, default_verb, with_context
from rota.cli.command import HELP_NAMES, is_help, parse
from tests.support.timeouts import PATIENCE_S

BLOCK = re.compile(
    r"(?:^<!-- not run: needs (?P<need>[^\n]+) -->\n)?"
    r"^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
FILE_NAME = re.compile(r"# ([\w.-]*\.(?:py|yaml|toml|sh))\n")
OPERATORS = frozenset({"|", "||", "&&", "&", ";", "(", ")"})
ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
END = "@@ end of command"


@dataclass(frozen=True)
class DocCommand:
    """A command of a page, and the lines of output that the page shows."""

    text: str
    output: tuple[str, ...]
    need: str
    """What this machine may lack; empty: the command is run."""


@dataclass(frozen=True)
class DocFile:
    name: str
    text: str


def steps(page: str) -> Iterator[DocCommand | DocFile]:
    """The commands and files of a page, in order."""
    for block in BLOCK.finditer(page):
        text, need = block["text"], block["need"] or ""
        if block["language"] == "console":
            yield from _commands(text, need)
        elif name := FILE_NAME.match(text):
            yield DocFile(name[1], text)


def _commands(text: str, need: str) -> Iterator[DocCommand]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        n_lines = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield DocCommand("\n".join(lines[:n_lines]), tuple(lines[n_lines:]), need)


def rota_command_lines(command: str) -> Iterator[list[str]]:
    """The words after `rota`, for each call of rota in a line of shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in OPERATORS:
            yield from _rota_words(words)
            words = []
        else:
            words.append(word)


def _rota_words(words: Sequence[str]) -> Iterator[list[str]]:
    own = list(words)
    while own and (ASSIGNMENT.fullmatch(own[0]) or own[0] == "sudo"):
        own.pop(0)
    for n, word in enumerate(own):  # A redirection ends what belongs to the command.
        if re.fullmatch(r"\d?[<>]+.*", word):
            own = own[:n]
            break
    if own and own[0] == "rota":
        yield own[1:]


def check_command_line(words: Sequence[str]) -> None:
    """Parse a command line of rota as `rota` itself does. Raises `UserError`."""
    if not words or words[0] in ("--version", *HELP_NAMES):
        return
    name, rest = words[0], list(words[1:])
    if name in NOUNS:
        verb = rest.pop(0) if rest and not rest[0].startswith("-") else default_verb(name)
        command = next(each for each in commands_of(name) if each.name == verb)
    else:
        assert name in MODULE_OF, f"no such command: rota {name}"
        command = command_named(name)
    command = with_context(name, command)
    if not is_help(command, rest):
        parse(command, rest, path=f"rota {name}")


def run_page(page: str, folder: Path, *, env: Mapping[str, str]) -> list[str]:
    """Run the commands of a page in one shell, in `folder`, and return what differs."""
    script: list[str] = []
    commands: list[DocCommand] = []
    for step in steps(page):
        if isinstance(step, DocFile):
            (folder / step.name).write_text(step.text)
        elif not step.need:
            commands.append(step)
            # The exit code is also that of the last command for `echo $?` on the next line.
            script.append(f"{step.text}\nn=$?; echo; echo '{END}' $n; (exit $n)")
    path = f"{Path(sys.executable).parent}:{env['PATH']}"
    with (folder / ".output").open("w+b") as output:
        subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=folder,
            env={**env, "PATH": path, "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=3 * PATIENCE_S,
            check=False,
        )
        output.seek(0)
        text = output.read().decode(errors="replace")
    return list(_differences(commands, text))


def _differences(commands: Sequence[DocCommand], text: str) -> Iterator[str]:
    parts = re.split(rf"\n{END} (\d+)\n", text)
    outputs, codes = parts[::2], parts[1::2]
    if len(codes) != len(commands):
        yield f"{len(codes)} of {len(commands)} commands have ended; the last printed {outputs[-1]}"
    followers = [*(each.text for each in commands[1:]), ""]
    for command, output, code, follower in zip(commands, outputs, codes, followers, strict=False):
        if code != "0" and not follower.startswith("echo $?"):
            yield f"$ {command.text}\nexits with {code}:\n{output}"
        if missing := _missing_line(command.output, output):
            yield f"$ {command.text}\ndoes not print {missing!r} there, but:\n{output}"


def _missing_line(expected: Sequence[str], output: str) -> str:
    """The first expected line that the output does not have after the lines before it."""
    lines = iter(output.splitlines())
    for each in expected:
        if each.strip() in ("", "..."):
            continue
        pattern = ".*".join(
            re.escape(part) for part in re.split(r" ?\.\.\. ?", " ".join(each.split()))
        )
        if not any(re.fullmatch(pattern, " ".join(line.split())) for line in lines):
            return each
    return ""
