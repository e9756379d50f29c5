"""Rules for every command: help, hints, fast imports, one line without a daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli.app import NAMES, NOUNS, SECTIONS, VERBS
from rota.cli.complete import suggestions
from rota.cli.options import JOB
from rota.core.lifecycle.states import JobState
from rota.wire.jobs import STATES
from tests.support.cli_commands import commands, groups
from tests.unit.cli.conftest import Rota

# What each needs besides its name, to get as far as asking.
WITH_DAEMON = {
    "submit": ["--", "true"],
    "list": [],
    "show": ["bert"],
    "story": ["bert"],
    "cancel": ["bert"],
    "hold": ["bert"],
    "release": ["bert"],
    "resize": ["bert", "2"],
    "edit": ["bert", "--priority", "5"],
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
    "history export": [],
    "cp": ["bert:model.pt", "."],
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
WITHOUT_DAEMON = {
    "up",
    "doctor",
    "simulate",
    "completion",
    "policy list",
    "policy decide",
    "projects divide",
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


def test_every_command_is_listed():
    assert set(EVERY) == WITH_DAEMON.keys() | WITHOUT_DAEMON


def test_every_verb_is_in_its_module():
    verbs = [verb for each in VERBS.values() for verb in each]
    assert [name for name in EVERY if " " not in name] == verbs
    assert groups() == list(NOUNS)
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(NAMES)


@pytest.mark.parametrize("words", [[], ["submit"], ["nodes"], ["nodes", "drain"]])
def test_help_is_also_a_command(rota: Rota, words: list[str]):
    assert rota("help", *words).out == rota(*words, "--help").out != ""


@pytest.mark.parametrize("name", ["", *EVERY, *groups()])
def test_help(rota: Rota, name: str):
    result = rota(*name.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Usage: rota {name}".rstrip() in result.out
    assert result.out == rota(*name.split(), "-h").out
    assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.parametrize("name", EVERY)
def test_commands_with_results_have_json(name: str):
    silent = {
        "report",
        "exec",
        "shell",
        "port-forward",
        "cp",
        "completion",
        "policy decide",
        "projects divide",
    }
    silent |= {"store backup", "store migrate"}
    options = {flag for each in EVERY[name].options for flag in each.flags}
    assert ("--json" in options) == (name not in silent)


@pytest.mark.parametrize("name", WITH_DAEMON)
def test_commands_with_a_daemon_have_context(rota: Rota, name: str):
    result = rota(*name.split(), "--context", "nobody", *WITH_DAEMON[name])
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("rota: unknown context 'nobody'; ")


@pytest.mark.parametrize("name", WITH_DAEMON)
def test_missing_daemon_is_one_line(rota: Rota, nowhere: Path, name: str):
    result = rota(*name.split(), *WITH_DAEMON[name])
    line = f"rota: no daemon at {nowhere}/rota.sock; start one with 'rota up --detach'\n"
    assert (result.code, result.out, result.err) == (1, "", line)


def test_missing_daemon_at_an_address(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")
    result = rota("list")
    assert result.err.startswith("rota: no daemon at http://127.0.0.1:1; ")
    monkeypatch.setenv("ROTA_URL", "http://:80x")
    assert rota("list").code == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("lst", "no such command 'lst', did you mean 'list'?"),
        ("nodes darin", "no such command 'darin', did you mean 'drain'?"),
        ("list --stat x", "no such option: --stat, did you mean '--state'?"),
        ("submit --gpu 2", "no such option: --gpu, did you mean '--gpus'?"),
        ("list --state runing", "unknown state 'runing'; did you mean 'running'?"),
        ("list --state x", "unknown state 'x'; the states are held, queued, starting, running, "),
        ("list --limit 0", "--limit 0 is out of range; use 1 to 100000"),
        ("list --limit many", "invalid value for '--limit': 'many' is not a whole number; "),
        (
            "submit --hours inf -- true",
            "hours: inf is not a number; leave out hours if you do not know it",
        ),
        ("submit --hours 1_0 -- true", "invalid value for '--hours': '1_0' is not a number; "),
        ("submit --hours x -- true", "invalid value for '--hours': 'x' is not a number; "),
        ("token create --scope read", "unknown scope 'read'; did you mean 'read_only'?"),
        ("token create --days 0", "--days 0 is not above 0; use a number above 0"),
        ("completion bsh", "no completion for 'bsh'; did you mean 'bash'?"),
        ("policy set fifi", "no policy 'fifi', did you mean 'fifo'?"),
    ],
)
def test_wrong_input_has_a_hint(rota: Rota, arguments: str, hint: str):
    result = rota(*arguments.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"rota: {hint}")
    assert result.err.count("\n") == 1


def test_states_are_those_of_the_kernel():
    assert set(STATES) == {state.value for state in JobState}


def test_policy_list_needs_no_daemon(rota: Rota):
    result = rota("policy", "list")
    assert (result.code, result.err) == (0, "")
    assert " *" not in result.out


@pytest.mark.parametrize("arguments", [["list"], ["submit", "--gpus", "2", "--", "true"]])
def test_fast_command_imports_no_large_library(arguments: list[str]):
    heavy = {
        "click",
        "email",
        "http.client",
        "pathspec",
        "rota.config.schema",
        "rota.wire.jobs",
        "ssl",
        "tomllib",
        "rich",
        "pydantic",
        "httpx2",
        "fastapi",
        "numpy",
        "yaml",
        "asyncio",
        "rota.core.kernel.kernel",
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
    variables = {"_ROTA_COMPLETE": "bash", **environment}
    code = (
        f"import os; os.environ.update({variables!r}); from rota.cli.main import main; "
        f"import sys; sys.argv = {list(words)!r}; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_completion_of_commands_flags_and_states():
    assert completed("rota", "resu") == ["resubmit"]
    assert completed("rota", "nodes", "dr") == ["drain"]
    assert completed("rota", "list", "--st") == ["--state"]
    assert completed("rota", "list", "--state", "s") == ["starting", "stopping", "succeeded"]
    assert completed("rota", "list", "--user", "s") == []
    assert completed("rota", "submit", "--", "--na") == []
    assert completed("rota", "nonsense", "x") == []
    assert {"submit", "nodes", "context"} <= set(completed("rota", ""))


def test_completion_shows_summaries_where_the_shell_can():
    assert suggestions(["canc"], shell="zsh") == "cancel:Cancel jobs."
    assert suggestions(["canc"], shell="fish") == "cancel\tCancel jobs."


def test_completion_of_the_second_argument_is_not_the_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(JOB, "complete", lambda _: [("bert", "")])
    assert suggestions(["resize", "b"], shell="bash") == "bert"
    assert suggestions(["resize", "--json", "b"], shell="bash") == "bert"
    assert suggestions(["resize", "bert", "b"], shell="bash") == ""


def test_bash_completes_with_the_script(rota: Rota, nowhere: Path):
    program = nowhere / "rota"
    program.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from rota.cli.main import main; main()' \"$@\"\n"
    )
    program.chmod(0o700)
    script = (
        f"{rota('completion', 'bash').out}\nCOMP_WORDS=(rota nodes dr)\nCOMP_CWORD=2\n"
        '_rota_completion\necho "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["/bin/bash"],
        input=script,
        text=True,
        capture_output=True,
        check=True,
        env={**os.environ, "PATH": f"{nowhere}:{os.environ['PATH']}"},
    )
    assert done.stdout == "drain\n"


def test_completion_of_jobs_is_silent_without_a_daemon(nowhere: Path):
    assert completed("rota", "show", "b", ROTA_HOME=str(nowhere)) == []
