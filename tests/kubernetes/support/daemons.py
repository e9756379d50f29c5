"""Daemons of a cluster as processes, each with a folder of its own, and kubectl beside them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.kubernetes.cluster.api import RefusedError, until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.witness import Witness
from tests.patience import PATIENCE_S
from tests.tidy.tree import ROOT

DEFINITION = ROOT / "deploy" / "kubernetes" / "base" / "crd.yaml"
FIRST_ERROR, GONE, NOT_NOW = 400, 404, 503
HELD = {"command": ["sleep", "1000"], "gpus": "0", "hold": True}
"""A job that needs nothing and does nothing."""


class Daemon:
    """`rota up --engine kubernetes`, as its tests reach it."""

    def __init__(self, folder: Path, arguments: list[str], *, runner: Sequence[str] = ()) -> None:
        """`runner` goes before its command, to run it somewhere else."""
        self.folder = folder
        self.port = free_port()
        self._arguments, self._runner = arguments, runner
        self._log = (folder / "log").open("ab")
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        listen = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "rota.cli.main", "up", "--listen", listen]
        return subprocess.Popen(
            [*self._runner, *command, *self._arguments],
            env={**os.environ, "ROTA_HOME": str(self.folder)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def client(self) -> httpx2.Client:
        transport = httpx2.HTTPTransport(uds=str(self.folder / "rota.sock"))
        return httpx2.Client(transport=transport, base_url="http://rota", timeout=PATIENCE_S)

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """Waits while it cannot tell."""
        answer = until(lambda: self._answer(method, path, **more), path)
        assert answer.status_code < FIRST_ERROR, answer.text
        return answer.json()

    def _answer(self, method: str, path: str, **more: Any) -> httpx2.Response | None:
        try:
            with self.client() as client:
                answer = client.request(method, path, **more)
        except httpx2.ConnectError:
            return None
        return None if answer.status_code == NOT_NOW else answer

    def submit(self, **fields: Any) -> str:
        [job_id] = self.ask("POST", "/v1/jobs", json={**HELD, **fields})["ids"]
        return job_id

    def jobs(self) -> dict[str, str]:
        found = self.ask("GET", "/v1/jobs", params={"limit": 1000})["jobs"]
        return {each["id"]: each["state"] for each in found}

    def job(self, job_id: str) -> Any:
        return self.ask("GET", f"/v1/jobs/{job_id}")["job"]

    def story(self, job_id: str) -> list[str]:
        entries = self.ask("GET", f"/v1/jobs/{job_id}/story")
        return [f"{each['cause']}: {each['reason']}" for each in entries]

    def probe(self, name: str) -> int:
        """What the cluster would be answered that asks how it is; 0 if nobody answers."""
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}/{name}", timeout=5.0).status_code
        except httpx2.TransportError:
            return 0

    def leads(self) -> Daemon:
        """Returns when it commands."""
        until(self._is_ready, f"a daemon that leads; it said: {self.log()}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        return (self.folder / "rota.sock").exists() and self.probe("readyz") == 200

    def waits(self) -> Daemon:
        """Returns when it stands by."""
        until(lambda: self.probe("healthz") == 200, "a daemon that waits")
        assert self.probe("readyz") == 503
        return self

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.kill()
            self._log.close()
        # Shown where a test has failed.
        sys.stdout.write(self.log())


@dataclass(frozen=True, slots=True)
class Lab(Witness):
    """A namespace of a cluster with our definitions, and daemons for it."""

    cluster: Cluster
    namespace: str
    stack: ExitStack

    def daemon(self, *arguments: str, runner: Sequence[str] = (), **settings: Any) -> Daemon:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-k-")))
        # JSON's lists and texts are TOML's, too.
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        (folder / "config.toml").write_text("\n".join(lines))
        cluster = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        words = ["--engine", "kubernetes", *cluster, *arguments]
        made = Daemon(folder, words, runner=runner)
        self.stack.callback(made.end)
        return made

    def make(self, name: str, **spec: Any) -> None:
        """With kubectl, as `ada`."""
        meta = {"name": name, "labels": {"rota.dev/user": "ada"}}
        body = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob", "metadata": meta}
        self.kubectl("apply", "-f", "-", given={**body, "spec": spec})

    @property
    def objects(self) -> str:
        return f"/apis/rota.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs"

    def found(self, name: str) -> dict[str, Any] | None:
        try:
            return self.cluster.api.get(f"{self.objects}/{name}")
        except RefusedError as error:
            if error.code != GONE:
                raise
            return None

    def status(self, name: str) -> dict[str, Any]:
        return (self.found(name) or {}).get("status") or {}

    def reaches(self, name: str, state: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            status = self.status(name)
            return status if status.get("state") == state else None

        return until(look, f"{name} to be {state}")

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Waits for a condition, and returns it."""

        def look() -> dict[str, Any] | None:
            told = self.status(name).get("conditions", [])
            return next((each for each in told if each["type"] == kind), None)

        return until(look, f"{kind} of {name}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def open_lab(cluster: Cluster, namespace: str) -> Iterator[Lab]:
    with ExitStack() as stack:
        lab = Lab(cluster, namespace, stack)
        lab.kubectl("apply", "-f", str(DEFINITION))
        lab.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.rota.dev")
        until(lambda: lab.ask_kubectl("get", "trainingjobs").returncode == 0, "the definition")
        stack.callback(_let_go_of_all, lab)
        yield lab


def _let_go_of_all(lab: Lab) -> None:
    """Nobody is left who would, and the namespace could not go."""
    for each in lab.cluster.api.items(lab.objects):
        path = f"{lab.objects}/{each['metadata']['name']}"
        lab.cluster.api.patch(path, {"metadata": {"finalizers": None}})
        lab.cluster.api.delete(path)
