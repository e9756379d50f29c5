"""`rota context`: names daemons and selects the one that commands contact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.client import Client
from tests.unit.cli.conftest import Rota

SECRET = "rota_verysecret"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("ROTA_URL", "ROTA_TOKEN", "ROTA_CONTEXT", "ROTA_HOME", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def add(rota: Rota, name: str = "lab", url: str = "https://lab:7600") -> None:
    result = rota("context", "add", name, url, "--token", "-", stdin=f"{SECRET}\n".encode())
    assert (result.code, result.err) == (0, "")


def test_token_file_is_private(rota: Rota, home: Path):
    add(rota)
    assert Client(context="lab").token == SECRET
    assert (home / "rota" / "contexts.json").stat().st_mode & 0o777 == 0o600
    assert (home / "rota").stat().st_mode & 0o777 == 0o700


def test_output_never_contains_a_token(rota: Rota):
    add(rota)
    rota("context", "use", "lab")
    said = [
        rota("context", *words)
        for words in (["list"], ["list", "--json"], ["show"], ["show", "--json"])
    ]
    assert [each.code for each in said] == [0, 0, 0, 0]
    assert SECRET not in str(said)
    assert SECRET not in repr(Client().endpoint)
    assert json.loads(said[1].out) == [
        {"name": "lab", "url": "https://lab:7600", "token": "kept", "is_current": True}
    ]


def test_use_and_remove(rota: Rota):
    add(rota)
    assert json.loads(rota("context", "show", "--json").out)["context"] == "local"
    rota("context", "use", "lab")
    assert rota("context", "show").out == "lab, set by 'rota context use'\n"
    assert str(Client().endpoint) == "https://lab:7600"
    rota("context", "use", "local")
    assert Client().endpoint.socket
    rota("context", "use", "lab")
    assert rota("context", "remove", "lab").out.startswith("commands now use the daemon of this")
    assert Client().endpoint.socket


def test_precedence_of_flags_variables_and_contexts(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    for name in ("lab", "home", "far"):
        add(rota, name, f"https://{name}")
    rota("context", "use", "lab")

    def meant(*words: str) -> str:
        return json.loads(rota(*words, "context", "show", "--json").out)["origin"]

    assert (meant(), str(Client().endpoint)) == ("'rota context use'", "https://lab")
    monkeypatch.setenv("ROTA_HOME", "/somewhere")
    assert (meant(), Client().endpoint.socket) == ("ROTA_HOME", "/somewhere/rota.sock")
    monkeypatch.setenv("ROTA_CONTEXT", "home")
    assert (meant(), str(Client().endpoint)) == ("ROTA_CONTEXT", "https://home")
    monkeypatch.setenv("ROTA_URL", "http://other:1")
    assert (meant(), str(Client().endpoint)) == ("ROTA_URL", "http://other:1")
    assert meant("--context", "far") == "--context"
    assert rota("list", "--context", "far").err.startswith("rota: no daemon at https://far")
    assert meant() == "ROTA_URL", "what one command was told is not for the next"


def test_token_is_sent_to_its_own_daemon_only(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    rota("context", "add", "lab", "https://lab")
    monkeypatch.setenv("ROTA_TOKEN", "rotajob_of_another")
    assert Client(context="lab").token == "rotajob_of_another"
    monkeypatch.setenv("ROTA_URL", "http://other:1")
    assert Client(context="lab").token == ""
    assert Client().token == "rotajob_of_another"


def test_a_token_file_is_read_each_time(rota: Rota, home: Path):
    (home / "token").write_text("first\n")
    rota("context", "add", "lab", "https://lab", "--token-file", str(home / "token"))
    assert Client(context="lab").token == "first"
    (home / "token").write_text("second\n")
    assert Client(context="lab").token == "second"
    (home / "token").unlink()
    assert rota("list", "--context", "lab").err.startswith(f"rota: {home}/token: no such file")


def test_plain_http_needs_a_flag(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    words = ("context", "add", "lab", "http://127.0.0.1:1", "--token", "-")
    refused = rota(*words, stdin=SECRET.encode())
    assert (refused.code, "is not encrypted" in refused.err) == (2, True)
    rota(*words, "--plain-http", stdin=SECRET.encode())
    assert rota("list", "--context", "lab").err.startswith("rota: no daemon at http://127.0.0.1:1;")
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ROTA_TOKEN", SECRET)
    assert rota("list").err.startswith("rota: the token is not sent to http://127.0.0.1:1: ")
    monkeypatch.setenv("ROTA_PLAIN_HTTP", "true")
    assert rota("list").err.startswith("rota: no daemon at http://127.0.0.1:1;")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            "add lab lab:7600",
            "URL: invalid address 'lab:7600'; write https://HOST:PORT or unix:///PATH",
        ),
        ("add lab http://", "invalid daemon address 'http:/'; "),
        ("add lab https://u:p@lab", "invalid daemon address 'https://lab'; "),
        ("add lab http://[::1", "invalid daemon address 'http://[::1'; "),
        ("add lab http://lab:x", "invalid daemon address 'http://lab:x'; "),
        ("add lab https://lab/path", "invalid daemon address 'https://lab/path'; "),
        ("add lab https://lab#sha256=ab", "invalid fingerprint 'sha256=ab'; "),
        (f"add lab http://lab#sha256={'0' * 64}", "invalid fingerprint "),
        ("add ../x https://lab", "invalid context name '../x'; "),
        (
            "add local https://lab",
            "context name 'local' is reserved for the daemon of this machine; ",
        ),
        ("add lab https://lab --token word", "every user of this machine can read a token "),
        (
            "add lab https://lab --token - --kubernetes",
            "a context takes only one source of its token; ",
        ),
        ("add lab https://lab --token-file nowhere", "nowhere: no such file or directory; "),
        ("add lab https://lab --token -", "standard input: no valid token; "),
        ("add lab https://lab --kubernetes", "no kubeconfig at "),
        ("use lab", "unknown context 'lab'; "),
        ("remove lab", "unknown context 'lab'; "),
    ],
)
def test_mistakes(rota: Rota, monkeypatch: pytest.MonkeyPatch, words: str, hint: str, home: Path):
    monkeypatch.chdir(home)
    result = rota("context", *words.split())
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert hint in result.err
    assert not (home / "rota" / "contexts.json").exists()


def test_context_name_is_unique(rota: Rota):
    add(rota)
    result = rota("context", "add", "lab", "https://elsewhere")
    assert (result.code, str(Client(context="lab").endpoint)) == (2, "https://lab:7600")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"current": 5}', '{"contexts": {"a": {"url": 7}}}', "[" * 10_000]
)
def test_broken_context_file_is_one_line(rota: Rota, home: Path, text: str):
    add(rota)
    (home / "rota" / "contexts.json").write_text(text)
    result = rota("list")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "contexts.json: not a valid contexts file; " in result.err


def test_context_file_readable_by_others_is_refused(rota: Rota, home: Path):
    add(rota)
    (home / "rota" / "contexts.json").chmod(0o644)
    result = rota("list", "--context", "lab")
    assert "other users can read or change it" in result.err
    assert SECRET not in result.err


@pytest.mark.parametrize("variable", ["ROTA_HOME", "ROTA_CONTEXT", "ROTA_URL"])
def test_use_says_that_a_variable_comes_first(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, variable: str
):
    add(rota)
    monkeypatch.setenv(variable, "/elsewhere")
    result = rota("context", "use", "lab")
    assert (result.code, result.out) == (0, "")
    assert f"{variable} is set and comes first; unset it" in result.err
