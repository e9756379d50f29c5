"""Tokens from a kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.client.kube_token import token_of
from rota.errors import RotaError, UserError


def kubeconfig(path: Path, users: dict[str, Any], *, current: str = "") -> Path:
    content = {
        "current-context": current,
        "contexts": [{"name": f"c-{name}", "context": {"user": name}} for name in users],
        "users": [{"name": name, "user": user} for name, user in users.items()],
    }
    path.write_text(json.dumps(content))
    return path


def test_token_of_a_context(tmp_path: Path):
    users = {"ann": {"token": "secret-a"}, "ben": {"tokenFile": "ben.token"}}
    path = str(kubeconfig(tmp_path / "config", users, current="c-ann"))
    (tmp_path / "ben.token").write_text("secret-b\n")
    assert token_of(path, "") == "secret-a"
    assert token_of(path, "c-ben") == "secret-b"


def test_first_of_several_files_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = kubeconfig(tmp_path / "first", {"ann": {"token": "a1"}})
    second = kubeconfig(
        tmp_path / "second", {"ann": {"token": "a2"}, "ben": {"token": "b2"}}, current="c-ben"
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'missing'}:{second}")
    assert token_of("", "c-ann") == "a1"
    assert token_of("", "") == "b2"


def test_token_of_a_credential_plugin(tmp_path: Path):
    script = tmp_path / "fetch"
    answer = {"kind": "ExecCredential", "status": {"token": "fetched"}}
    script.write_text(
        "#!/bin/sh\n"
        'case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 1;; esac\n'
        f"[ \"$1 $WHO\" = 'for ann' ] && echo '{json.dumps(answer)}'\n"
    )
    script.chmod(0o700)
    plugin = {"command": "./fetch", "args": ["for"], "env": [{"name": "WHO", "value": "ann"}]}
    path = kubeconfig(tmp_path / "config", {"ann": {"exec": plugin}}, current="c-ann")
    assert token_of(str(path), "") == "fetched"


@pytest.mark.parametrize(
    ("user", "what"),
    [
        ({"client-certificate-data": "AA=="}, "certificate or a password"),
        ({"exec": {"command": "/nowhere/fetch"}}, "'/nowhere/fetch' failed: No such file"),
        ({"exec": {"command": "false"}}, "'false' failed: CalledProcessError"),
        ({"exec": {"command": "true"}}, "'true' returned no token"),
        ({"tokenFile": "missing"}, "missing: no such file"),
    ],
)
def test_no_token(tmp_path: Path, user: dict[str, Any], what: str):
    path = kubeconfig(tmp_path / "config", {"ann": user}, current="c-ann")
    with pytest.raises(RotaError, match=what):
        token_of(str(path), "")


@pytest.mark.parametrize(
    "text", ["", "- 1", "a: [", "users: 5\n", "users: [1]\n", "contexts: {a: 1}\n"]
)
def test_invalid_kubeconfig(tmp_path: Path, text: str):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UserError):
        token_of(str(path), "c")


def test_unknown_context(tmp_path: Path):
    path = kubeconfig(tmp_path / "config", {"ann": {"token": "a"}})
    with pytest.raises(UserError, match="no current context"):
        token_of(str(path), "")
    with pytest.raises(UserError, match=r"unknown context 'c-anm'; did you mean 'c-ann'\?"):
        token_of(str(path), "c-anm")
