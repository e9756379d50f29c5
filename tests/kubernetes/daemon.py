"""A daemon of a cluster, as a process beside it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.kubernetes.cluster.api import until
from tests.patience import PATIENCE_S
from tests.tidy.tree import ROOT


@contextmanager
def daemon(kubeconfig: Path, namespace: str, home: Path, **settings: str) -> Iterator[str]:
    """Its URL. What it logs is in the file `log` of its home."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    words = ["--engine", "kubernetes", "--kubeconfig", str(kubeconfig)]
    words += ["--namespace", namespace, "--listen", f"127.0.0.1:{port}"]
    env = {**os.environ, "ROTA_HOME": str(home), **settings}
    command = [sys.executable, "-m", "rota.cli.main", "up", *words]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stderr=log, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.poll() is None, (home / "log").read_text()[-2000:]
        try:
            return httpx2.get(f"{url}/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    try:
        until(is_ready, "the daemon")
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
