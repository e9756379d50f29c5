"""A daemon that only speaks the wire of training jobs: it hears reports and orders stops."""

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from rota_trainer.messages import PATH, Orders, to_json

REASON = "somebody else's turn"


class StandIn:
    def __init__(self, socket: Path) -> None:
        self.url = f"unix://{socket}"
        self.reports: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._stopping: set[int] = set()
        self._told: set[int] = set()
        self._server = _Server(str(socket), _Handler)
        self._server.stand_in = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def stop(self, *workers: int) -> None:
        """Order these workers to stop, and wait until each was told."""
        with self._changed:
            self._stopping |= set(workers)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: set(workers) <= self._told, timeout=60)

    def answer(self, report: dict[str, Any]) -> Orders:
        """As the real one: an order that is new cuts the wait short."""
        worker = report["worker"]
        with self._changed:
            self.reports.append(report)
            if worker not in self._told:
                self._changed.wait_for(lambda: worker in self._stopping, report["wait_s"])
            return Orders(stop=REASON if worker in self._stopping else "")

    def told(self, worker: int) -> None:
        with self._changed:
            self._told.add(worker)
            self._changed.notify_all()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    stand_in: StandIn


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert self.path == PATH
        assert self.headers["Authorization"] == "Bearer open sesame"
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stand_in = cast(_Server, self.server).stand_in
        orders = stand_in.answer(report)
        body = json.dumps(to_json(orders)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if orders.stop:
            stand_in.told(report["worker"])

    def address_string(self) -> str:
        return "a worker"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name upstream
        pass
