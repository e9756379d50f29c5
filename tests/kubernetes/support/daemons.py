"""Daemons of a cluster as processes, each with its own folder, and kubectl beside them."""

from __future__ import annotations

import json
import os
import signal
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
from tests.kubernetes.support.kubectl import Kubectl
from tests.support.ports import reserve_port
from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

DEFINITION = ROOT / "deploy" / "kubernetes" / "base" / "crd.yaml"
FIRST_ERROR, GONE, NOT_NOW = 400, 404, 503
HELD = {"command": ["sleep", "1000"], "gpus": "0", "hold": True}
"""A job that needs nothing and does nothing."""


class Daemon:
    """A process `rota up --engine kubernetes`."""

    def __init__(self, folder: Path, arguments: list[str], *, runner: Sequence[str] = ()) -> None:
        """`runner`: a command prefix that runs the daemon elsewhere."""
        self.folder = folder
        self.port = reserve_port()
        self._arguments, self._runner = arguments, runner
        self._log = (folder / "log").open("ab")
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        listen = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "rota.cli.main", "up", "--listen", listen]
        command += ["--plain-http"]
        return subprocess.Popen(
            [*self._runner, *command, *self._arguments],
            env={**os.environ, "ROTA_HOME": str(self.folder), "ROTA_MAX_PRIORITY": "7"},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def client(self) -> httpx2.Client:
        transport = httpx2.HTTPTransport(uds=str(self.folder / "rota.sock"))
        return httpx2.Client(transport=transport, base_url="http://rota", timeout=PATIENCE_S)

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """Send a request; waits while the daemon is unavailable."""
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
        """The status of a health check; 0 if nothing answers."""
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}/{name}", timeout=5.0).status_code
        except httpx2.TransportError:
            return 0

    def leads(self) -> Daemon:
        """Returns when the daemon is the leader."""
        until(self._is_ready, f"a daemon that leads; it said: {self.log()}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        return (self.folder / "rota.sock").exists() and self.probe("readyz") == 200

    def waits(self) -> Daemon:
        """Returns when the daemon is on standby."""
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
        # Shown if the test has failed.
        sys.stdout.write(self.log())


@dataclass(frozen=True, slots=True)
class DaemonLab(Kubectl):
    """A namespace of a cluster with our CRD, and daemons for it."""

    cluster: Cluster
    namespace: str
    stack: ExitStack

    def daemon(self, *arguments: str, runner: Sequence[str] = (), **settings: Any) -> Daemon:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-k-")))
        # Lists and strings of JSON are valid TOML.
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        (folder / "config.toml").write_text("\n".join(lines))
        cluster = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        words = ["--engine", "kubernetes", *cluster, *arguments]
        made = Daemon(folder, words, runner=runner)
        self.stack.callback(made.end)
        return made

    def make(self, name: str, **spec: Any) -> None:
        """Create an object with kubectl, as `ada`."""
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
        """Wait for a condition, and return it."""

        def look() -> dict[str, Any] | None:
            told = self.status(name).get("conditions", [])
            return next((each for each in told if each["type"] == kind), None)

        return until(look, f"{kind} of {name}")


@contextmanager
def open_daemon_lab(cluster: Cluster, namespace: str) -> Iterator[DaemonLab]:
    with ExitStack() as stack:
        lab = DaemonLab(cluster, namespace, stack)
        lab.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
        lab.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.rota.dev")
        until(lambda: lab.ask_kubectl("get", "trainingjobs").returncode == 0, "the definition")
        stack.callback(_remove_training_jobs, lab)
        yield lab


def _remove_training_jobs(lab: DaemonLab) -> None:
    """No daemon is left to remove the finalizers, which would keep the namespace."""
    for each in lab.cluster.api.items(lab.objects):
        path = f"{lab.objects}/{each['metadata']['name']}"
        lab.cluster.api.patch(path, {"metadata": {"finalizers": None}})
        lab.cluster.api.delete(path)


@contextmanager
def started_daemon(kubeconfig: Path, namespace: str, home: Path, **settings: str) -> Iterator[str]:
    """The URL of a daemon. Its log is the file `log` of its home."""
    port = reserve_port()
    words = ["--engine", "kubernetes", "--kubeconfig", str(kubeconfig)]
    words += ["--namespace", namespace, "--listen", f"127.0.0.1:{port}", "--plain-http"]
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
