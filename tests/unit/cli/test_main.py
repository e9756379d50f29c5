"""Every mistake is one line and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

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
        (["policy"], "rota: missing command; 'rota policy --help' lists what there is\n"),
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


def test_help_loads_no_solver():
    code = (
        "import sys; from rota.cli.main import run; run(['--help']); "
        "print(sorted({'numpy', 'scipy', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
