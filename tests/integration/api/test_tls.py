"""TCP with TLS: clients verify the daemon before they send a token, and a taken port does no
harm."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota.client import Client
from rota.client.exec import run
from rota.errors import UserError
from rota_trainer.reporting.http import DaemonConnection, DaemonRequestError
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.ports import reserve_port

USER = "daemon"


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    with temporary_daemon() as found:
        found.home.chmod(0o711)
        found.place.chmod(0o777)
        found.up("--listen", f"127.0.0.1:{reserve_port()}")
        yield found


def _other(url: str) -> str:
    """The URL with the fingerprint of another certificate."""
    return url[:-1] + ("1" if url.endswith("0") else "0")


def test_client_trusts_the_certificate_with_the_fingerprint(daemon: DaemonProcess):
    url = daemon.client.status().address
    token = daemon.client.create_token(user=USER).secret
    with Client(url, token=token) as rota:
        job = rota.submit(daemon.request("say start; await end"))
        daemon.reaches(job, "running")
        assert run(rota, job, command=["echo", "hello"]).output == b"hello\n"
    for wrong, why in (
        (_other(url), "another certificate"),
        (url.partition("#")[0], "not trusted"),
    ):
        with Client(wrong, token=token) as rota, pytest.raises(UserError, match=why):
            rota.jobs()


def test_key_is_private_and_the_certificate_survives_a_restart(daemon: DaemonProcess):
    url = daemon.client.status().address
    assert (daemon.state / "tls-key.pem").stat().st_mode & 0o777 == 0o600
    daemon.kill()
    daemon.up("--listen", url.partition("//")[2].partition("#")[0])
    assert daemon.client.status().address == url


def test_context_takes_the_fingerprint_from_the_socket(daemon: DaemonProcess, tmp_path: Path):
    url = daemon.client.status().address
    daemon.tell(XDG_CONFIG_HOME=str(tmp_path))
    plain = url.partition("#")[0]
    assert daemon.rota("context", "add", "near", plain).returncode == 0
    assert (
        json.loads((tmp_path / "rota/contexts.json").read_text())["contexts"]["near"]["url"] == url
    )


def test_unknown_certificate_is_shown_and_refused(daemon: DaemonProcess, tmp_path: Path):
    url = daemon.client.status().address
    daemon.tell(XDG_CONFIG_HOME=str(tmp_path), ROTA_HOME=str(tmp_path))
    told = daemon.rota("context", "add", "far", url.partition("#")[0])
    assert (told.returncode, url.partition("#")[2] in told.stderr) == (2, True)


def test_workers_use_the_socket(daemon: DaemonProcess):
    job = daemon.client.submit(daemon.request('say "$ROTA_URL"'))
    daemon.says(job, f"unix://{daemon.state}/door/rota.sock")


def test_taken_port_is_reported_and_retried():
    with temporary_daemon() as daemon, socket.create_server(("127.0.0.1", 0)) as squatter:
        address = f"127.0.0.1:{squatter.getsockname()[1]}"
        daemon.up("--listen", address)
        assert "cannot listen on" in daemon.client.status().address_problem
        assert "address already in use" in daemon.rota("status").stdout.lower()
        squatter.close()
        wait_until(lambda: not daemon.client.status().address_problem, "the port")
        url = daemon.client.status().address
        unknown = pytest.raises(UserError, match="unknown, expired or revoked token")
        with Client(url, token="rota_wrong") as rota, unknown:
            rota.jobs()


def test_certificate_of_the_administrator(tmp_path: Path):
    """Signed by nobody that this machine knows, so the client refuses it."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=rota.lab"
    subprocess.run([*words.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    port = reserve_port()
    with temporary_daemon() as daemon:
        daemon.up("--listen", f"127.0.0.1:{port}", "--tls-cert", str(cert), "--tls-key", str(key))
        assert daemon.client.status().address == f"https://127.0.0.1:{port}"
        served = ssl.get_server_certificate(("127.0.0.1", port))
        assert served.strip() == cert.read_text().strip()
    refused = daemon.rota("up", "--listen", f"127.0.0.1:{port}", "--tls-cert", str(cert))
    assert (refused.returncode, "belong together" in refused.stderr) == (2, True)


def test_token_never_goes_over_plain_http():
    with socket.create_server(("127.0.0.1", 0)) as thief:
        url = f"http://127.0.0.1:{thief.getsockname()[1]}"
        with Client(url, token="rota_secret") as rota, pytest.raises(UserError, match="not sent"):
            rota.jobs()
        thief.setblocking(False)
        with pytest.raises(BlockingIOError):
            thief.accept()


def test_trainer_verifies_the_certificate(daemon: DaemonProcess):
    url = daemon.client.status().address
    with pytest.raises(DaemonRequestError) as refused:
        DaemonConnection(url, "rota_job_wrong").send({}, 30.0)
    assert refused.value.is_final  # The daemon answered: the token is unknown.
    with pytest.raises(DaemonRequestError, match="unknown certificate"):
        DaemonConnection(_other(url), "rota_job_wrong").send({}, 30.0)


def test_malformed_request_over_tls_is_answered(daemon: DaemonProcess):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = urlsplit(daemon.client.status().address).port
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw) as encrypted,
    ):
        encrypted.sendall(b"nonsense\r\n\r\n")
        assert encrypted.recv(1000).startswith(b"HTTP/1.1 400")
