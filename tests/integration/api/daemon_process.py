"""A daemon in its own process, and clients of its sockets."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from rota.client.endpoint import Endpoint
from tests.support.ports import reserve_port
from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

LIBRARIES = Path(httpx2.__file__).parents[1]
LONG = (30.0, 30.0, 60.0)
"""How long a client may take: for the headers, for the body, between requests. A fourth number is
the interval of comments on event streams."""
ANNA, BERT = "daemon", "nobody"
"""Two accounts that every machine has."""
SLEEP = {"command": ["sleep", "1000"], "workdir": "/"}


class ApiDaemon:
    """A running daemon, and ways to connect to it."""

    def __init__(self, folder: Path, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.port = port
        self.process = process
        self.socket = str(folder / "rota.sock")
        self.url = f"http://127.0.0.1:{port}"
        self.endpoint = Endpoint(url=self.url, allows_plain_http=True)
        self.admin = self.by_socket()

    def by_socket(self) -> httpx2.Client:
        transport = httpx2.HTTPTransport(uds=self.socket)
        return httpx2.Client(transport=transport, base_url="http://rota", timeout=PATIENCE_S)

    def by_tcp(self, token: str = "") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def token(self, user: str, scope: str = "user", **more: Any) -> str:
        answer = self.admin.post("/v1/tokens", json={"user": user, "scope": scope, **more})
        assert answer.status_code == 201, answer.text
        return answer.json()["secret"]

    def person(self, user: str, scope: str = "user") -> httpx2.Client:
        return self.by_tcp(self.token(user, scope))

    def raw(self, *, is_tcp: bool = False) -> socket.socket:
        """A connection for bytes that a client library would not send."""
        made = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
        made.settimeout(PATIENCE_S)
        while True:
            try:
                made.connect(("127.0.0.1", self.port) if is_tcp else self.socket)
            except BlockingIOError:  # The queue of new connections is full.
                time.sleep(0.01)
            else:
                return made

    def n_jobs(self) -> int:
        jobs = self.admin.get("/v1/jobs", params={"limit": 1000}).json()
        return len(jobs["jobs"])

    def state(self, job: str) -> str:
        return self.admin.get(f"/v1/jobs/{job}").json()["job"]["state"]

    def reaches(self, job: str, *states: str) -> str:
        eventually(lambda: self.state(job) in states)
        return self.state(job)

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def is_well(self) -> bool:
        """Whether another client is served and the store can be written."""
        with self.by_socket() as client:
            ready = client.get("/readyz").json()["status"] == "ok"
            return ready and client.get("/v1/me").status_code == 200


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


def submit(person: httpx2.Client, **fields: Any) -> str:
    answer = person.post("/v1/jobs", json={**SLEEP, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["ids"][0]


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def problem_of(raw: bytes) -> dict[str, Any]:
    return json.loads(raw.partition(b"\r\n\r\n")[2])


@contextmanager
def running(patience: tuple[float, ...] = LONG, *, uid: int | None = None) -> Iterator[ApiDaemon]:
    """Run a daemon in a short path that all users can pass: sockets and other users need it."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    if uid is not None:
        os.chown(folder, uid, uid)
    try:
        with _process(folder, reserve_port(), patience=patience, uid=uid) as daemon:
            yield daemon
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _process(
    folder: Path, port: int, *, patience: tuple[float, ...], uid: int | None
) -> Iterator[ApiDaemon]:
    python = sys.executable if uid is None else interpreter_for_all()
    words = [str(folder), str(port), ",".join(map(str, patience))]
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [python, "-m", "tests.integration.api.daemon_main", *words],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'trainer/src'}:{ROOT}:{LIBRARIES}",
            },
            stdout=log,
            stderr=log,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
    daemon = ApiDaemon(folder, port, process)
    try:
        eventually(lambda: process.poll() is not None or (folder / "ready").exists())
        assert process.poll() is None, daemon.log()
        yield daemon
        daemon.admin.post("/v1/stop", params={"stop_jobs": True})
        process.wait(PATIENCE_S)
    finally:
        daemon.admin.close()
        process.send_signal(signal.SIGKILL)
        process.wait()


def interpreter_for_all() -> str:
    """A Python of this version that any user can run; empty if there is none."""
    version = "python{}.{}".format(*sys.version_info)
    for path in (Path(sys.executable).resolve(), Path("/usr/bin", version)):
        places = (path, *path.parents, LIBRARIES, ROOT)
        if all(each.exists() and each.stat().st_mode & 0o005 == 0o005 for each in places):
            return str(path)
    return ""
