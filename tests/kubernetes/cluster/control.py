"""The connection to a cluster's init process. An open connection keeps the cluster; closing the
last one ends it."""

import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ANSWER_LIMIT_S = 60.0
COMPACTION = """
import json, urllib.request

def ask(path, **body):
    url = f"http://127.0.0.1:2379/v3/kv/{path}"
    return json.load(urllib.request.urlopen(url, json.dumps(body).encode()))

ask("compaction", revision=ask("range", key="AA==")["header"]["revision"], physical=True)
"""
"""etcd also speaks HTTP, and its own client is not always installed."""


class InitProcessError(OSError):
    """The init process could not execute a request."""


class Control:
    """Controls the parts of a cluster. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_LIMIT_S)
        self._lock = threading.Lock()
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._answers = self._socket.makefile("r")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def start(self, name: str, part: dict[str, Any] | None = None) -> int:
        """Start a part, or restart a stopped one; returns its pid inside the namespaces."""
        return self.ask(do="start", name=name, part=part)["pid"]

    def stop(self, name: str) -> int:
        """Stop a part and return its exit code."""
        return self.ask(do="stop", name=name, is_kill=False)["code"]

    def kill(self, name: str) -> None:
        self.ask(do="stop", name=name, is_kill=True)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Stop the part within this context."""
        self.stop(name)
        try:
            yield
        finally:
            self.start(name)

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Suspend the part within this context: it exists, but does not respond."""
        self.ask(do="signal", name=name, number=signal.SIGSTOP)
        try:
            yield
        finally:
            self.ask(do="signal", name=name, number=signal.SIGCONT)

    def cut_connections(self) -> None:
        """Reset every connection to the API server, so that all watches break."""
        self.run("ss", "--no-header", "--kill", "state", "established", "sport = :6443")

    def forget_history(self) -> None:
        """Compact etcd, as the API server does every few minutes, and restart the API server,
        which caches some history. No older watch can be resumed."""
        self.run(sys.executable, "-c", COMPACTION)
        self.kill("apiserver")
        self.start("apiserver")

    def run(self, *command: str) -> str:
        """Run a command inside the cluster's namespaces, and return its output."""
        done = self.ask(do="run", command=command)
        if done["code"]:
            raise InitProcessError(
                f"{' '.join(command)} ended with {done['code']}: {done['output']}"
            )
        return done["output"]

    def running(self) -> dict[str, bool]:
        return self.ask(do="status")

    def is_only_hold(self) -> bool:
        """Whether closing this connection would end the cluster."""
        return self.ask(do="holds") == {"n": 1, "stays": False}

    def stay(self) -> None:
        """Keep the cluster after the last connection is closed."""
        self.ask(do="stay")

    def down(self) -> None:
        self.ask(do="down")

    def ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
        if not line:
            raise InitProcessError("the cluster has ended")
        answer = json.loads(line)
        if error := answer.get("error"):
            raise InitProcessError(error)
        return answer
