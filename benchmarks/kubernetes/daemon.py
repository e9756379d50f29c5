"""rota on a cluster: the daemon as people start it, beside the cluster, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

import rota
from benchmarks.peers.stage import free_port, stage
from benchmarks.scale.ground import NAMESPACE, Ground, cpu_s
from rota.client import Client
from rota.config import SOCKET_NAME

# What the installed command runs; a checkout that is not installed has no such command.
ANSWER_S = 300.0
ROTA = (sys.executable, "-c", "from rota.cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Daemon:
    client: Client
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def resident_bytes(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """-9, without a word to anybody."""
        self.process.kill()
        self.process.wait()


@contextmanager
def daemon(ground: Ground, *, is_standby: bool = False) -> Iterator[Daemon]:
    """Returns when it commands; one that stands by, when it does that."""
    listen = f"127.0.0.1:{free_port()}"
    expected = httpx2.codes.SERVICE_UNAVAILABLE if is_standby else httpx2.codes.OK
    with stage("kubernetes") as made:
        home = made.folder / "state"
        made.environment |= {
            "ROTA_HOME": str(home),
            "PYTHONPATH": str(Path(rota.__file__).parents[1]),
        }
        where = ("--kubeconfig", ground.kubeconfig, "--namespace", NAMESPACE, "--listen", listen)
        process = made.daemon(
            *ROTA,
            "up",
            "--engine",
            "kubernetes",
            *where,
            is_ready=lambda: _readiness(listen) == expected,
        )
        yield Daemon(Client(f"unix://{home / SOCKET_NAME}", answer_s=ANSWER_S), process)


def _readiness(listen: str) -> int:
    """The status of the answer to whoever asks whether it takes work; 0 if nobody answers."""
    try:
        return httpx2.get(f"http://{listen}/readyz", timeout=5.0).status_code
    except httpx2.TransportError:
        return 0
