"""The cluster and the credentials that the daemon takes from a kubeconfig or a service account."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rota.errors import RotaError, UserError
from rota.kube import auth
from rota.kube.auth import load_access

CA = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUGGVDwSt20WCEQrSX8LIU5+hv6SkwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMTgwNTExMzhaGA8yMTI2MTAyNTA1MTEz
OFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABF1T
wQGVb4HtUCgGldU1zLxUPvxhyADsLsLW3JNka3lHnUyHwAaepQk79TDcMfjdLqel
hOJW+qHLMX/rnHmR0nijUzBRMB0GA1UdDgQWBBS0Viea7h764b5I/sfZbqUakdoE
hjAfBgNVHSMEGDAWgBS0Viea7h764b5I/sfZbqUakdoEhjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQC3aybiATYUhBNbg89sJ+v8n/QIAA5qU4Gw
A+RcO84PDQIhAOgt7m6q4mHNod3ZWwRg1oTkiQzPLaJ52hyztSMDLLUO
-----END CERTIFICATE-----
"""
"""A certificate that signs nothing."""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(
    path: Path,
    user: dict[str, Any] | None,
    *,
    name: str = "lab",
    cluster: dict[str, Any] | None = None,
) -> Path:
    context = {"cluster": name, "namespace": f"ns-{name}", "user": name}
    content: dict[str, Any] = {
        "current-context": name,
        "contexts": [{"name": name, "context": context}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}/"} | (cluster or {})}],
        "users": [] if user is None else [{"name": name, "user": user}],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def header_of(path: Path, *, is_refused: bool = False) -> str:
    headers = asyncio.run(load_access(path).headers(is_refused=is_refused))
    return headers.get("Authorization", "")


def test_files_of_kubeconfig_are_merged_as_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first file that sets a value wins, and a file of the list may be missing."""
    contexts = tmp_path / "contexts"
    content = {"contexts": [{"name": "far", "context": {"cluster": "lab", "user": "lab"}}]}
    contexts.write_text(json.dumps(content))
    first = kubeconfig(tmp_path / "first", {"token": "one"})
    second = kubeconfig(tmp_path / "second", {"token": "two"}, name="other")
    again = kubeconfig(tmp_path / "again", {"token": "three"})
    files = [contexts, tmp_path / "missing", first, second, again]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    chosen = load_access()
    assert (chosen.url, chosen.namespace) == ("https://lab", "ns-lab")
    assert asyncio.run(chosen.headers()) == {"Authorization": "Bearer one"}
    assert load_access(context="other").url == "https://other"
    far = load_access(context="far")
    assert (far.url, far.namespace) == ("https://lab", "default")


def test_relative_paths_start_at_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also if another file of the list names the context."""
    contexts = tmp_path / "contexts"
    content = {"contexts": [{"name": "far", "context": {"cluster": "lab", "user": "lab"}}]}
    contexts.write_text(json.dumps(content))
    other = kubeconfig(tmp_path / "below" / "config", {"tokenFile": "token"})
    (tmp_path / "below" / "token").write_text("secret\n")
    monkeypatch.setenv("KUBECONFIG", f"{contexts}:{other}")
    access = load_access(context="far")
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer secret"}


def test_rotated_token_is_read_again(tmp_path: Path):
    path = kubeconfig(tmp_path / "config", {"token": "stale", "tokenFile": "token"})
    (tmp_path / "token").write_text("one")
    access = load_access(path)
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer one"}
    assert asyncio.run(access.headers(is_refused=True)) == {"Authorization": "Bearer two"}


def test_credential_plugin_runs_again_after_a_refusal(tmp_path: Path):
    script = tmp_path / "fetch"
    script.write_text(
        "#!/bin/sh\n"
        'case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 1;; esac\n'
        'cd "$(dirname "$0")"; echo x >>runs\n'
        'echo "{\\"status\\": {\\"token\\": \\"run-$(wc -l <runs)\\"}}"\n'
    )
    script.chmod(0o700)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./fetch"}
    access = load_access(kubeconfig(tmp_path / "config", {"exec": plugin}))
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer run-1"}
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer run-1"}
    assert asyncio.run(access.headers(is_refused=True)) == {"Authorization": "Bearer run-2"}


def test_other_credentials(tmp_path: Path):
    basic = {"username": "ann", "password": "secret"}
    assert header_of(kubeconfig(tmp_path / "a", basic)) == "Basic YW5uOnNlY3JldA=="
    assert header_of(kubeconfig(tmp_path / "b", {})) == ""


def test_tls_of_the_cluster(tmp_path: Path):
    open_door = {"insecure-skip-tls-verify": True}
    access = load_access(kubeconfig(tmp_path / "config", {}, cluster=open_door))
    assert not access.tls.check_hostname
    assert load_access(kubeconfig(tmp_path / "config", {})).tls.check_hostname


@pytest.mark.parametrize(
    ("user", "cluster", "what"),
    [
        (None, {}, "context 'lab' has no user"),
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider"),
        ({}, {"server": ""}, "no address of cluster 'lab'"),
        ({}, {"certificate-authority": "ca.crt"}, "ca.crt"),
        ({}, {"certificate-authority-data": "!"}, "certificate-authority-data"),
        ({"client-certificate-data": "AAAA"}, {}, "of the user 'lab'"),
        (
            {"client-certificate": "a.crt", "client-key": "a.key"},
            {},
            "of the user 'lab'",
        ),
    ],
)
def test_unusable_kubeconfig(
    tmp_path: Path, user: dict[str, Any] | None, cluster: dict[str, Any], what: str
):
    with pytest.raises(UserError, match=what):
        load_access(kubeconfig(tmp_path / "config", user, cluster=cluster))


def test_credentials_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(RotaError, match="token: no such file"):
        header_of(kubeconfig(tmp_path / "config", {"tokenFile": "token"}))
    with pytest.raises(RotaError, match="'false' failed"):
        header_of(kubeconfig(tmp_path / "config", {"exec": {"command": "false"}}))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "contexts: 5"])
def test_invalid_kubeconfig(tmp_path: Path, text: str):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UserError):
        load_access(path)


def test_no_kubeconfig():
    with pytest.raises(UserError, match=r"no kubeconfig at .*config"):
        load_access()


def test_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(auth, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UserError, match="service account"):
        load_access()
    (tmp_path / "token").write_text("of-the-pod\n")
    (tmp_path / "namespace").write_text("lab")
    (tmp_path / "ca.crt").write_text(CA)
    access = load_access()
    assert (access.url, access.namespace) == ("https://[fd00::1]:443", "lab")
    assert asyncio.run(access.headers()) == {"Authorization": "Bearer of-the-pod"}
