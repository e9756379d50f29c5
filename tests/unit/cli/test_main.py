"""Every error is one line and an exit code."""

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


def test_no_arguments_print_help(rota: Rota):
    result = rota()
    assert result.code == 0
    assert "simulate" in result.out
    assert "Exit codes" in result.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulat"], "rota: no such command 'simulat', did you mean 'simulate'?\n"),
        (["store"], "rota: missing command; see 'rota store --help'\n"),
        (["policy", "lsit"], "rota: no such command 'lsit', did you mean 'list'?\n"),
        (
            ["simulate"],
            "rota: missing argument 'TRACE'; see 'rota simulate --help'\n",
        ),
        (
            ["simulate", "voda:run_1"],
            "rota: missing option '--cluster'; see 'rota simulate --help'\n",
        ),
        (["--nonsense"], "rota: no such option: --nonsense; see 'rota --help'\n"),
    ],
)
def test_wrong_command_line_is_one_line(rota: Rota, arguments: list[str], line: str):
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
def test_noun_without_verb_runs_its_default_verb(rota: Rota, noun: list[str], verb: list[str]):
    result = rota(*noun)
    assert result == rota(*verb)
    assert result.code == 0


def test_help_of_a_noun(rota: Rota):
    result = rota("policy", "--help")
    assert "Commands:" in result.out
    assert "'rota policy' is short for 'rota policy list'." in result.out


def failing(error: BaseException) -> Callable[..., None]:
    def fail(**_: object) -> None:
        raise error

    return fail


def test_rota_errors_have_exit_codes(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.policies.registry.names", failing(RotaError("no\nluck", "try again")))
    result = rota("policy", "list")
    assert (result.code, result.err) == (1, "rota: no luck; try again\n")


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.policies.registry.names", failing(KeyboardInterrupt()))
    assert run(["policy", "list"]) == 130


def test_closed_pipe_is_no_traceback():
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
def test_full_disk_is_one_line(arguments: str):
    line = "rota: cannot write the output: No space left on device\n"
    assert in_shell(arguments, ">/dev/full") == (1, "", line)


@pytest.mark.parametrize("arguments", ["--help", "policy list"])
def test_closed_stdout_is_one_line(arguments: str):
    line = "rota: cannot write the output: standard output is closed\n"
    assert in_shell(arguments, ">&-") == (1, "", line)


def test_closed_stdin_is_one_line():
    line = "rota: standard input is closed; this command reads cases from stdin\n"
    assert in_shell("policy decide fifo", "<&-") == (2, "", line)


@pytest.mark.parametrize("nowhere", ["2>&-", "2>/dev/full"])
def test_without_stderr_the_result_and_the_exit_code_are_kept(nowhere: str):
    code, out, _ = in_shell(SIMULATE, nowhere)
    assert (code, "fifo" in out) == (0, True)
    assert in_shell("simulat", nowhere) == (2, "", "")


def test_all_streams_may_be_closed():
    assert in_shell("policy list", "<&- >&- 2>&-") == (1, "", "")


@pytest.mark.parametrize("module", ["argparse", "rota.policies.registry"])
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


@pytest.mark.parametrize(
    ("arguments", "rare"), [("--help", {"numpy", "scipy", "rich"}), (SIMULATE, {"scipy"})]
)
def test_command_loads_only_the_libraries_that_it_needs(arguments: str, rare: set[str]):
    code = (
        f"import sys; from rota.cli.main import run; run({arguments.split()!r}); "
        f"print(sorted({rare!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_version(rota: Rota):
    assert rota("--version").out == f"rota {__version__}\n"


def test_option_without_value_names_its_command(rota: Rota):
    assert "see 'rota submit --help'" in rota("submit", "--ship").err


@pytest.mark.parametrize("words", [("up", "--json"), ("logs", "x", "--json", "--timestamps")])
def test_json_flag_of_commands_without_json(rota: Rota, words: tuple[str, ...]):
    result = rota(*words)
    assert (result.code, result.out) == (2, "")
    assert "--json" in result.err
