"""`rota port-forward` and `rota submit --port`, with a real server in the job."""

import re
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.client import Client
from rota.client.port_forward import Forwarder, ForwardTarget, PortMapping
from rota.errors import UnavailableError, UserError
from tests.integration.sessions.daemon import Daemon, until
from tests.support.ports import reserve_port
from tests.support.timeouts import PATIENCE_S

BIG = bytes(range(256)) * 40_000
ECHO = """
import socket
door = socket.create_server(("127.0.0.1", {port}))
while True:
    line, _ = door.accept()
    while chunk := line.recv(65536):
        line.sendall(chunk)
    line.close()
"""


def fetch(port: int, name: str = "") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=PATIENCE_S) as answer:
        return answer.read()


def is_true(question: Callable[[], object]) -> bool:
    try:
        return bool(question())
    except OSError:
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small").write_text("hello\n")
    (tmp_path / "big").write_bytes(BIG)
    return tmp_path


def server(port: int) -> str:
    return f"exec {sys.executable} -m http.server {port} --bind 127.0.0.1"


def test_two_connections_at_once(daemon: Daemon, rota: Client, folder: Path) -> None:
    port = reserve_port()
    job_id = daemon.run(rota, server(port), workdir=str(folder))
    until(lambda: is_true(lambda: fetch(port)))
    running = daemon.cli_in_background("port-forward", job_id, f"0:{port}", "0:1")
    assert running.stdout is not None
    assert running.stderr is not None
    said = running.stdout.readline().decode()
    found = re.fullmatch(rf"forwarding 127\.0\.0\.1:(\d+) to port {port} of {job_id}\n", said)
    assert found is not None, said
    here = int(found[1])
    nothing_here = int(running.stdout.readline().split()[1].split(b":")[1])
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(fetch(here, "big"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [BIG, BIG]
    assert fetch(here, "small") == b"hello\n"
    with pytest.raises(OSError, match=r".*"):
        fetch(nothing_here)
    told = running.stderr.readline()
    assert told.startswith(f"rota: port 1 of {job_id}: cannot connect to port".encode()), told
    rota.cancel(job_id)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, "the job is over, and so is the way to it"


def test_ctrl_c_ends_the_forwarding(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    running = daemon.cli_in_background("port-forward", job_id, "0:80")
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130


def test_both_directions_full_at_once(daemon: Daemon, rota: Client) -> None:
    port = reserve_port()
    job_id = daemon.run(rota, f"exec {sys.executable} -c '{ECHO.format(port=port)}'")
    until(lambda: is_true(lambda: socket.create_connection(("127.0.0.1", port)).close() is None))
    with Forwarder([PortMapping(0, port)], _fail) as forward:
        forward.serve(ForwardTarget(rota, job_id))
        with socket.create_connection(("127.0.0.1", forward.ports[0].local)) as line:

            def write() -> None:
                line.sendall(BIG)
                line.shutdown(socket.SHUT_WR)

            writing = threading.Thread(target=write)
            writing.start()
            back = b"".join(iter(lambda: line.recv(65536), b""))
            writing.join()
    assert back == BIG


def _fail(words: str) -> None:
    raise AssertionError(words)


@pytest.mark.usefixtures("rota")
def test_ports_of_the_submit(daemon: Daemon, folder: Path) -> None:
    here, there = reserve_port(), reserve_port()
    command = ["sh", "-c", f"{server(there)} & until test -e over; do sleep 0.05; done; exit 4"]
    options = ["--gpus", "1", "--port", f"{here}:{there}", "--workdir", str(folder), "--follow"]
    running = daemon.cli_in_background("submit", *options, "--", *command)
    until(lambda: is_true(lambda: fetch(here, "small") == b"hello\n"))
    assert running.stdout is not None
    job_id = running.stdout.readline().decode().strip()
    again = daemon.cli("port-forward", job_id)
    assert (again.returncode, again.stderr[:43]) == (
        1,
        f"rota: cannot listen on 127.0.0.1:{here}: addr"[:43].encode(),
    )
    (folder / "over").touch()
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 4


def test_port_in_use_prevents_the_submit(daemon: Daemon, rota: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        n_before = len(rota.jobs().jobs)
        done = daemon.cli("submit", "--port", f"{port}:80", "--wait", "--", "true")
    assert done.returncode == 1
    assert b"choose another port" in done.stderr
    assert len(rota.jobs().jobs) == n_before


def test_job_without_ports(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    done = daemon.cli("port-forward", job_id)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"was submitted without --port" in done.stderr


def test_read_only_token_is_rejected(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    token = rota.create_token(scope="read_only").secret
    told: list[str] = []
    with daemon.client(token) as reader, Forwarder([PortMapping(0, 80)], told.append) as forward:
        forward.serve(ForwardTarget(reader, job_id))
        with socket.create_connection(("127.0.0.1", forward.ports[0].local)) as line:
            assert line.recv(1) == b""
    assert "this token may only read" in told[0]


@pytest.mark.parametrize("text", ["", "80", "a:b", "1:2:3", "80:0", "1:70000", "70000:1", "-1:5"])
def test_invalid_ports(text: str) -> None:
    with pytest.raises(UserError, match="invalid ports"):
        PortMapping.of_text(text)


def test_port_in_use() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UnavailableError, match="cannot listen"),
    ):
        Forwarder([PortMapping(taken.getsockname()[1], 80)], _fail)


def test_ports_of_a_finished_submit_are_free_again(daemon: Daemon) -> None:
    port = reserve_port()
    for _ in range(2):
        done = daemon.cli("submit", "--gpus", "0", "--port", f"{port}:80", "--wait", "--", "true")
        assert done.returncode == 0, done.stderr
