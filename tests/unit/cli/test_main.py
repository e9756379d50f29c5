"""Every mistake is one line and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from rota import __version__
from rota.cli.main import run
from rota.errors import RotaError
from tests.unit.cli.conftest import Rota

PROGRAM = [sys.executable, "-c", "from rota.cli.main import main; main()"]


def test_without_arguments_it_helps(rota: Rota):
    result = rota()
    assert result.code == 0
    assert "simulate" in result.out
    assert "Exit codes" in result.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulat"], "rota: no such command 'simulat', did you mean 'simulate'?\n"),
        (["store"], "rota: missing command; 'rota store --help' lists what there is\n"),
        (["policy", "lsit"], "rota: no such command 'lsit', did you mean 'list'?\n"),
        (
            ["simulate"],
            "rota: missing argument 'TRACE'; 'rota simulate --help' lists what there is\n",
        ),
        (
            ["simulate", "voda:run_1"],
            "rota: missing option '--cluster'; 'rota simulate --help' lists what there is\n",
        ),
        (["--nonsense"], "rota: no such option: --nonsense; 'rota --help' lists what there is\n"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(rota: Rota, arguments: list[str], line: str):
    result = rota(*arguments)
    assert (result.code, result.out, result.err) == (2, "", line)


@pytest.mark.parametrize(
    ("noun", "verb"),
    [
        (["policy"], ["policy", "list"]),
        (["policy", "--json"], ["policy", "list", "--json"]),
        (["context"], ["context", "list"]),
        (["config"], ["config", "show"]),
    ],
)
def test_a_noun_alone_shows_what_there_is(rota: Rota, noun: list[str], verb: list[str]):
    result = rota(*noun)
    assert result == rota(*verb)
    assert result.code == 0


def test_the_help_of_a_noun_is_its_own(rota: Rota):
    result = rota("policy", "--help")
    assert "Commands:" in result.out
    assert "'rota policy' alone is 'rota policy list'." in result.out


def failing(error: BaseException) -> Callable[..., None]:
    def fail(**_: object) -> None:
        raise error

    return fail


def test_our_errors_bring_their_exit_code(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.policies.registry.names", failing(RotaError("no\nluck", "try again")))
    result = rota("policy", "list")
    assert (result.code, result.err) == (1, "rota: no luck; try again\n")


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.policies.registry.names", failing(KeyboardInterrupt()))
    assert run(["policy", "list"]) == 130


def test_a_reader_who_goes_away_is_no_crash():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, "policy", "list"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 1


SIMULATE = "simulate synthetic:jobs=3,seed=1 --cluster 1x4 --policy fifo"


def in_shell(arguments: str, redirections: str) -> tuple[int, str, str]:
    command = f'"$0" -c "from rota.cli.main import main; main()" {arguments} {redirections}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", ["--help", "policy list", SIMULATE])
def test_a_full_disk_is_told_in_one_line(arguments: str):
    line = "rota: cannot write the output: No space left on device\n"
    assert in_shell(arguments, ">/dev/full") == (1, "", line)


@pytest.mark.parametrize("arguments", ["--help", "policy list"])
def test_a_closed_output_is_told_in_one_line(arguments: str):
    line = "rota: cannot write the output: standard output is closed\n"
    assert in_shell(arguments, ">&-") == (1, "", line)


def test_a_closed_input_is_told_in_one_line():
    line = "rota: standard input is closed; decide reads cases from it\n"
    assert in_shell("policy decide fifo", "<&-") == (2, "", line)


@pytest.mark.parametrize("nowhere", ["2>&-", "2>/dev/full"])
def test_without_stderr_the_result_and_the_exit_code_are_kept(nowhere: str):
    code, out, _ = in_shell(SIMULATE, nowhere)
    assert (code, "fifo" in out) == (0, True)
    assert in_shell("simulat", nowhere) == (2, "", "")


def test_all_streams_may_be_closed():
    assert in_shell("policy list", "<&- >&- 2>&-") == (1, "", "")


@pytest.mark.parametrize("module", ["typer", "rota.policies.registry"])
def test_an_interrupt_during_an_import_is_130(module: str):
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['rota', 'policy', 'list']\n"
        "from rota.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_loads_no_solver():
    code = (
        "import sys; from rota.cli.main import run; run(['--help']); "
        "print(sorted({'numpy', 'scipy', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_version(rota: Rota):
    assert rota("--version").out == f"rota {__version__}\n"


def test_an_option_without_its_value_points_at_its_command(rota: Rota):
    assert "'rota submit --help' lists what there is" in rota("submit", "--ship").err


@pytest.mark.parametrize("words", [("up", "--json"), ("logs", "x", "--json", "--timestamps")])
def test_json_of_what_has_none(rota: Rota, words: tuple[str, ...]):
    result = rota(*words)
    assert (result.code, result.out) == (2, "")
    assert "--json" in result.err
