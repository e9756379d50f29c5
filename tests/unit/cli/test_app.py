"""What holds for every command: help, hints, quick loading, one line when no daemon answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli.app import NOUNS, VERBS
from rota.core.states import State
from rota.wire.jobs import STATES
from tests.unit.cli.commands import commands, groups
from tests.unit.cli.conftest import Rota

# What each needs besides its name, to get as far as asking.
ASKING = {
    "submit": ["--", "true"],
    "list": [],
    "show": ["bert"],
    "story": ["bert"],
    "cancel": ["bert"],
    "hold": ["bert"],
    "release": ["bert"],
    "resize": ["bert", "2"],
    "resubmit": ["bert"],
    "wait": ["bert"],
    "logs": ["bert"],
    "exec": ["bert", "--", "true"],
    "shell": ["bert"],
    "port-forward": ["bert", "8000:80"],
    "profile": ["bert"],
    "report": ["bert"],
    "top": [],
    "status": [],
    "down": [],
    "nodes list": [],
    "nodes drain": ["box"],
    "nodes resume": ["box"],
    "nodes lost": ["box"],
    "policy show": [],
    "policy set": ["fifo"],
    "token create": [],
    "token list": [],
    "token revoke": ["0a1b2c3d"],
}
ALONE = {
    "up",
    "simulate",
    "completion",
    "policy list",
    "policy decide",
    "context add",
    "context use",
    "context list",
    "context show",
    "context remove",
    "config show",
    "store check",
    "store backup",
    "store migrate",
}
EVERY = commands()


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ROTA_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_known_here():
    assert set(EVERY) == ASKING.keys() | ALONE


def test_every_verb_is_in_the_module_that_is_said_to_have_it():
    verbs = [verb for each in VERBS.values() for verb in each]
    assert [name for name in EVERY if " " not in name] == verbs
    assert groups() == list(NOUNS)


@pytest.mark.parametrize("name", ["", *EVERY, *groups()])
def test_help(rota: Rota, name: str):
    result = rota(*name.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Usage: rota {name}".rstrip() in result.out
    assert result.out == rota(*name.split(), "-h").out
    # Typer's words for what it makes of an argument, and what it had no room for.
    ugly = [words for words in ("<str>", "<list", "{JOB", "{NAME", "{TRACE") if words in result.out]
    assert ugly == []
    summaries = result.out.partition("Commands:")[2]
    assert "..." not in summaries


@pytest.mark.parametrize("name", EVERY)
def test_whatever_answers_has_json(name: str):
    silent = {
        "report",
        "exec",
        "shell",
        "port-forward",
        "completion",
        "policy decide",
    }
    silent |= {"store backup", "store migrate"}
    options = {option for each in EVERY[name].params for option in each.opts}
    assert ("--json" in options) == (name not in silent)


@pytest.mark.parametrize("name", ASKING)
def test_whatever_asks_can_be_told_whom(rota: Rota, name: str):
    result = rota(*name.split(), "--context", "nobody", *ASKING[name])
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("rota: no context 'nobody'; ")


@pytest.mark.parametrize("name", ASKING)
def test_without_a_daemon_it_is_one_line(rota: Rota, nowhere: Path, name: str):
    result = rota(*name.split(), *ASKING[name])
    line = f"rota: no daemon answers at {nowhere}/rota.sock; start one with 'rota up --detach'\n"
    assert (result.code, result.out, result.err) == (1, "", line)


def test_without_a_daemon_at_an_address(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")
    result = rota("list")
    assert result.err.startswith("rota: no daemon answers at http://127.0.0.1:1; ")
    monkeypatch.setenv("ROTA_URL", "http://:80x")
    assert rota("list").code == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("lst", "no such command 'lst', did you mean 'list'?"),
        ("nodes darin", "no such command 'darin', did you mean 'drain'?"),
        ("list --stat x", "no such option: --stat, did you mean '--state'?"),
        ("submit --gpu 2", "no such option: --gpu, did you mean '--gpus'?"),
        ("list --state runing", "no state 'runing'; did you mean 'running'?"),
        ("list --state x", "no state 'x'; there are held, queued, starting, running, "),
        ("list --limit 0", "--limit 0 is out of bounds; use 1 to 100000"),
        ("list --limit many", "invalid value for '--limit': 'many' is not a whole number; "),
        ("submit --hours inf -- true", "hours: inf is not a number; leave it out if unknown"),
        ("submit --hours 1_0 -- true", "invalid value for '--hours': '1_0' is not a number; "),
        ("submit --hours x -- true", "invalid value for '--hours': 'x' is not a number; "),
        ("list --watch --json", "--watch draws a table; leave out --watch or --json"),
        ("token create --scope read", "no scope 'read'; did you mean 'read_only'?"),
        ("token create --days 0", "--days 0 is no time; use a number above 0"),
        ("completion bsh", "no completion for 'bsh'; did you mean 'bash'?"),
        ("policy set fifi", "no policy 'fifi', did you mean 'fifo'?"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(rota: Rota, arguments: str, hint: str):
    result = rota(*arguments.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"rota: {hint}")
    assert result.err.count("\n") == 1


def test_states_are_those_of_the_kernel():
    assert set(STATES) == {state.value for state in State}


def test_policy_list_needs_no_daemon(rota: Rota):
    result = rota("policy", "list")
    assert (result.code, result.err) == (0, "")
    assert " *" not in result.out


@pytest.mark.parametrize("arguments", [["list"], ["submit", "--gpus", "2", "--", "true"]])
def test_a_quick_command_loads_nothing_heavy(arguments: list[str]):
    heavy = {
        "rich",
        "pydantic",
        "httpx2",
        "fastapi",
        "numpy",
        "yaml",
        "asyncio",
        "rota.core.kernel",
    }
    code = (
        f"import sys; from rota.cli.main import run; run({arguments!r}); "
        f"print(sorted({heavy!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(rota: Rota, shell: str):
    script = rota("completion", shell).out
    assert "_ROTA_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["/bin/bash", "-n"], input=script, text=True, check=True)


def completed(*words: str, **environment: str) -> list[str]:
    variables = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_ROTA_COMPLETE": "complete_bash",
        **environment,
    }
    code = (
        f"import os; os.environ.update({variables!r}); from rota.cli.main import main; "
        "import sys; sys.argv = ['rota']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_completion_of_commands_flags_and_states():
    assert completed("rota", "resu") == ["resubmit"]
    assert completed("rota", "nodes", "dr") == ["drain"]
    assert completed("rota", "list", "--st") == ["--state"]
    assert completed("rota", "list", "--state", "s") == ["starting", "stopping", "succeeded"]


def test_completion_of_jobs_is_silent_without_a_daemon(nowhere: Path):
    assert completed("rota", "show", "b", ROTA_HOME=str(nowhere)) == []
