"""The line to a cluster's keeper. Holding one keeps the cluster; closing the last one ends it."""

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
"""etcd speaks HTTP, too: its own client is not everywhere."""


class KeeperError(OSError):
    """The keeper could not do what it was asked."""


class Control:
    """What can be done to the parts of a cluster. Safe to use from several threads."""

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
        """Starts a part, or the same one again that was stopped; its process, as seen in there."""
        return self.ask(do="start", name=name, part=part)["pid"]

    def stop(self, name: str) -> int:
        """Asks the part to end, and returns its exit code once it has."""
        return self.ask(do="stop", name=name, is_kill=False)["code"]

    def kill(self, name: str) -> None:
        self.ask(do="stop", name=name, is_kill=True)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Without the part for a while."""
        self.stop(name)
        try:
            yield
        finally:
            self.start(name)

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """The part hangs for a while: it is there, and answers nobody."""
        self.ask(do="signal", name=name, number=signal.SIGSTOP)
        try:
            yield
        finally:
            self.ask(do="signal", name=name, number=signal.SIGCONT)

    def cut_connections(self) -> None:
        """Resets every connection to the API server, so that all watches break."""
        self.run("ss", "--no-header", "--kill", "state", "established", "sport = :6443")

    def forget_history(self) -> None:
        """etcd drops all that was before now, as the API server has it do every few minutes; and
        the API server begins anew, which remembers some of it. No older watch can be resumed."""
        self.run(sys.executable, "-c", COMPACTION)
        self.kill("apiserver")
        self.start("apiserver")

    def run(self, *command: str) -> str:
        """Runs a command inside the cluster's namespaces, and returns what it printed."""
        done = self.ask(do="run", command=command)
        if done["code"]:
            raise KeeperError(f"{' '.join(command)} ended with {done['code']}: {done['output']}")
        return done["output"]

    def running(self) -> dict[str, bool]:
        return self.ask(do="status")

    def is_only_hold(self) -> bool:
        """Whether the cluster would end if this line were closed."""
        return self.ask(do="holds") == {"n": 1, "stays": False}

    def stay(self) -> None:
        """Keeps the cluster when the last line is closed."""
        self.ask(do="stay")

    def down(self) -> None:
        self.ask(do="down")

    def ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
        if not line:
            raise KeeperError("the cluster has ended")
        answer = json.loads(line)
        if error := answer.get("error"):
            raise KeeperError(error)
        return answer
