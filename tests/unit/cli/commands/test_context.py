"""`rota context`: which daemons there are to talk to, and which one is meant."""

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


def test_a_token_rests_in_a_file_for_its_owner_alone(rota: Rota, home: Path):
    add(rota)
    assert Client(context="lab").token == SECRET
    assert (home / "rota" / "contexts.json").stat().st_mode & 0o777 == 0o600
    assert (home / "rota").stat().st_mode & 0o777 == 0o700


def test_no_answer_has_a_token(rota: Rota):
    add(rota)
    rota("context", "use", "lab")
    said = [
        rota("context", *words)
        for words in (["list"], ["list", "--json"], ["show"], ["show", "--json"])
    ]
    assert [each.code for each in said] == [0, 0, 0, 0]
    assert SECRET not in str(said)
    assert SECRET not in repr(Client().door)
    assert json.loads(said[1].out) == [
        {"name": "lab", "url": "https://lab:7600", "token": "kept", "is_current": True}
    ]


def test_use_and_remove(rota: Rota):
    add(rota)
    assert json.loads(rota("context", "show", "--json").out)["context"] == "local"
    rota("context", "use", "lab")
    assert rota("context", "show").out == "lab, by 'rota context use'\n"
    assert str(Client().door) == "https://lab:7600"
    rota("context", "use", "local")
    assert Client().door.socket
    rota("context", "use", "lab")
    assert rota("context", "remove", "lab").out.startswith("commands talk to the daemon of this")
    assert Client().door.socket


def test_the_order_of_those_who_say_which_daemon(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    for name in ("lab", "home", "far"):
        add(rota, name, f"https://{name}")
    rota("context", "use", "lab")

    def meant(*words: str) -> str:
        return json.loads(rota(*words, "context", "show", "--json").out)["origin"]

    assert (meant(), str(Client().door)) == ("'rota context use'", "https://lab")
    monkeypatch.setenv("ROTA_HOME", "/somewhere")
    assert (meant(), Client().door.socket) == ("ROTA_HOME", "/somewhere/rota.sock")
    monkeypatch.setenv("ROTA_CONTEXT", "home")
    assert (meant(), str(Client().door)) == ("ROTA_CONTEXT", "https://home")
    monkeypatch.setenv("ROTA_URL", "http://other:1")
    assert (meant(), str(Client().door)) == ("ROTA_URL", "http://other:1")
    assert meant("--context", "far") == "--context"
    assert rota("list", "--context", "far").err.startswith("rota: no daemon answers at https://far")
    assert meant() == "ROTA_URL", "what one command was told is not for the next"


def test_a_token_goes_nowhere_but_where_it_belongs(rota: Rota, monkeypatch: pytest.MonkeyPatch):
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


def test_a_token_in_the_clear_is_told(rota: Rota):
    words = ("context", "add", "lab", "http://lab:7600", "--token", "-")
    told = rota(*words, stdin=SECRET.encode())
    assert "unencrypted" in told.err
    near = ("context", "add", "near", "http://127.0.0.1:7600", "--token", "-")
    assert rota(*near, stdin=SECRET.encode()).err == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("add lab lab:7600", "URL is 'lab:7600'; write http://HOST:PORT or unix:///PATH"),
        ("add lab http://", " is no address of a daemon; "),
        ("add lab https://u:p@lab", "'https://u:p@lab' is no address of a daemon; "),
        ("add lab http://[::1", "'http://[::1' is no address of a daemon; "),
        ("add lab http://lab:x", "'http://lab:x' is no address of a daemon; "),
        ("add lab https://lab/path", "'https://lab/path' is no address of a daemon; "),
        ("add ../x https://lab", "'../x' is no name of a context; "),
        ("add local https://lab", "'local' is the daemon of this machine; "),
        ("add lab https://lab --token word", "a token on the command line can be read by "),
        ("add lab https://lab --token - --kubernetes", "a token can come from one place only; "),
        ("add lab https://lab --token-file nowhere", "nowhere: no such file or directory; "),
        ("add lab https://lab --token -", "standard input: there is no token in it; "),
        ("add lab https://lab --kubernetes", "there is no kubeconfig at "),
        ("use lab", "no context 'lab'; "),
        ("remove lab", "no context 'lab'; "),
    ],
)
def test_mistakes(rota: Rota, monkeypatch: pytest.MonkeyPatch, words: str, hint: str, home: Path):
    monkeypatch.chdir(home)
    result = rota("context", *words.split())
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert hint in result.err
    assert not (home / "rota" / "contexts.json").exists()


def test_a_name_is_given_once(rota: Rota):
    add(rota)
    result = rota("context", "add", "lab", "https://elsewhere")
    assert (result.code, str(Client(context="lab").door)) == (2, "https://lab:7600")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"current": 5}', '{"contexts": {"a": {"url": 7}}}', "[" * 10_000]
)
def test_a_file_that_makes_no_sense_is_one_line(rota: Rota, home: Path, text: str):
    add(rota)
    (home / "rota" / "contexts.json").write_text(text)
    result = rota("list")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "contexts.json: it is not a list of contexts; " in result.err


def test_a_file_that_others_may_read_is_not_used(rota: Rota, home: Path):
    add(rota)
    (home / "rota" / "contexts.json").chmod(0o644)
    result = rota("list", "--context", "lab")
    assert "others may read or change it" in result.err
    assert SECRET not in result.err
