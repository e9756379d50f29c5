"""A fake daemon with real HTTP: it records reports and sends scripted answers."""

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.support.timeouts import PATIENCE_S

LIBRARY = Path(__file__).parents[3] / "trainer" / "src"

REASON = "somebody else's turn"

Answer = tuple[int, str, bytes]


class FakeDaemon:
    """Records reports; holds answers like the real daemon."""

    def __init__(self) -> None:
        self.url = ""
        self.reports: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.paths: set[str] = set()
        self.connections: list[socket.socket] = []
        self.answers: Callable[[], Answer] | None = None
        """The answer to send instead of orders."""
        self._orders: dict[str, Any] = {}
        self._stopping: set[int] = set()
        self._told: set[int] = set()
        self._changed = threading.Condition()
        self._is_closing = False

    def order(self, **orders: Any) -> None:
        with self._changed:
            self._orders = orders
            self._changed.notify_all()

    def order_and_wait(self, **orders: Any) -> None:
        """Set orders, and wait for the second report: the first one may already be on its way."""
        n_before = len(self.reports)
        self.order(**orders)
        self.wait_for(lambda reports: len(reports) > n_before + 1)

    def stop(self, *workers: int) -> None:
        """Order these workers to stop, and wait until each has got the order."""
        with self._changed:
            self._stopping |= set(workers)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: set(workers) <= self._told, PATIENCE_S)

    def has_told(self, worker: int) -> None:
        with self._changed:
            self._told.add(worker)
            self._changed.notify_all()

    def _orders_for(self, worker: int) -> dict[str, Any]:
        return {**self._orders, "stop": REASON} if worker in self._stopping else self._orders

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hear(self, report: dict[str, Any]) -> Answer:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()
            if self.answers is not None:
                return self.answers()
            worker = report["worker"]
            known = self._orders_for(worker) if worker in self._told else self._orders
            self._changed.wait_for(
                lambda: self._orders_for(worker) != known or self._is_closing, report["wait_s"]
            )
            return 200, "application/json", json.dumps(self._orders_for(worker)).encode()

    def wait_for(self, found: Callable[[list[dict[str, Any]]], bool]) -> None:
        with self._changed:
            heard = lambda: bool(self.reports) and found(self.reports)  # noqa: E731
            assert self._changed.wait_for(heard, PATIENCE_S), self.reports

    @property
    def distinct(self) -> list[dict[str, Any]]:
        """The reports without duplicates."""
        return list({report["sequence"]: report for report in self.reports}.values())

    def records(self, name: str) -> list[dict[str, Any]]:
        return [record for report in self.distinct for record in report[name]]


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _UnixServer(_Server):
    address_family = socket.AF_UNIX


def _handler(fake_daemon: FakeDaemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            fake_daemon.connections.append(self.connection)

        def do_POST(self) -> None:
            fake_daemon.paths.add(self.path)
            fake_daemon.tokens.add(self.headers["Authorization"])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            report = json.loads(body)
            status, kind, answer = fake_daemon.hear(report)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            if REASON.encode() in answer:
                fake_daemon.has_told(report["worker"])

        def handle(self) -> None:
            # Workers close the connection when they end.
            with suppress(OSError):
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler


@contextmanager
def daemon(unix: Path | None = None, *, port: int = 0) -> Iterator[FakeDaemon]:
    fake_daemon = FakeDaemon()
    if unix is None:
        server: _Server = _Server(("127.0.0.1", port), _handler(fake_daemon))
        fake_daemon.url = f"http://127.0.0.1:{server.server_address[1]}"
    else:
        server = _UnixServer(str(unix), _handler(fake_daemon))  # pyright: ignore[reportArgumentType]
        fake_daemon.url = f"unix://{unix}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake_daemon
    finally:
        fake_daemon.close()
        server.shutdown()
        thread.join()
        server.server_close()


def environment(url: str = "", **more: str) -> dict[str, str]:
    """The environment of a worker; without a URL, that of a standalone script."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    found = {**kept, "PYTHONPATH": str(LIBRARY), "PYTHONDONTWRITEBYTECODE": "1", **more}
    if url:
        given = {
            "ROTA_URL": url,
            "ROTA_TOKEN": "secret",
            "ROTA_JOB": "j1",
            "ROTA_ATTEMPT": "1",
            "ROTA_WORKER": "j1/1/3/n",
        }
        found = {**given, **found}
    return found


@contextmanager
def script(
    folder: Path, text: str, *arguments: str, env: dict[str, str], python: str = sys.executable
) -> Iterator[subprocess.Popen[str]]:
    """A training script in its own process, which is killed at the end of the test."""
    path = folder / "train.py"
    path.write_text(text)
    process = subprocess.Popen(
        [python, str(path), *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # A reader that waits for a line then gets the end of the file.
    too_late = threading.Timer(PATIENCE_S, process.kill)
    too_late.start()
    try:
        yield process
    finally:
        too_late.cancel()
        process.kill()
        process.communicate()


def run_training_script(
    folder: Path, text: str, *arguments: str, env: dict[str, str], python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    with script(folder, text, *arguments, env=env, python=python) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
