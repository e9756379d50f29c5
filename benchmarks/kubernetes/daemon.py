"""Starts rota's daemon for a cluster, with the command that users run and its own state folder."""

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
from benchmarks.kubernetes.cluster import NAMESPACE, BenchmarkCluster, cpu_s
from benchmarks.support.sandbox import free_port, sandbox
from rota.client import Client
from rota.config.paths import SOCKET_NAME

# The module behind the command `rota`, which exists only in an installed checkout.
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
        """Kill the daemon with SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextmanager
def daemon(benchmark_cluster: BenchmarkCluster, *, is_standby: bool = False) -> Iterator[Daemon]:
    """Start a daemon and wait until it leads or, as a standby, until it waits for the lease."""
    listen = f"127.0.0.1:{free_port()}"
    expected = httpx2.codes.SERVICE_UNAVAILABLE if is_standby else httpx2.codes.OK
    with sandbox("kubernetes") as made:
        home = made.folder / "state"
        made.environment |= {
            "ROTA_HOME": str(home),
            "PYTHONPATH": str(Path(rota.__file__).parents[1]),
        }
        where = (
            "--kubeconfig",
            benchmark_cluster.kubeconfig,
            "--namespace",
            NAMESPACE,
            "--listen",
            listen,
        )
        process = made.daemon(
            *ROTA,
            "up",
            "--engine",
            "kubernetes",
            *where,
            is_ready=lambda: _readiness(listen) == expected,
        )
        yield Daemon(
            Client(f"unix://{home / SOCKET_NAME}", answer_s=ANSWER_S, takes_context=False), process
        )


def _readiness(listen: str) -> int:
    """The HTTP status of `/readyz`; 0 without an answer."""
    try:
        return httpx2.get(f"http://{listen}/readyz", timeout=5.0).status_code
    except httpx2.TransportError:
        return 0
