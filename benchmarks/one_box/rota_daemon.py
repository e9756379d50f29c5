"""rota as a peer: its daemon with one virtual GPU per slot."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rota
from benchmarks.one_box.peer import NOTHING, Amounts, spread
from benchmarks.support.sandbox import Sandbox, answers_at, children, sandbox, wait_until
from rota.client import Client, JobRequest
from rota.config.paths import SOCKET_NAME

# The module behind the command `rota`, which exists only in an installed checkout.
ROTA = (sys.executable, "-c", "from rota.cli.main import main; main()")
LIVE = ("queued", "starting", "running", "stopping")


class RotaDaemon:
    name = "rota"
    needs = "nothing else"
    remark = (
        "rota is driven through its Python client over the Unix socket, and its list by the"
        " command `rota list`. Slots are virtual GPUs, and each job asks for one."
    )
    is_durable = True
    amounts = Amounts()

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self._slots = 0
        self._clients = threading.local()

    @property
    def version(self) -> str:
        return rota.__version__

    def available(self) -> bool:
        return True

    @contextmanager
    def running(self, slots: int) -> Iterator[None]:
        self._slots = slots
        self._clients = threading.local()
        with sandbox("rota") as self._sandbox:
            self._sandbox.environment |= {
                "ROTA_HOME": str(self._home),
                "PYTHONPATH": str(Path(rota.__file__).parents[1]),
                # Compile once, as an installation does.
                "PYTHONPYCACHEPREFIX": str(self._sandbox.folder / "compiled"),
                "PYTHONDONTWRITEBYTECODE": "",
            }
            self._daemon = self._start(self._sandbox)
            if slots == 0:
                self.submit_one(("sleep", "infinity"))
                wait_until(
                    lambda: self._n(["running"]) == 1, what="full box", every_s=0.02, within_s=10.0
                )
            yield

    def submit_one(self, argv: Sequence[str]) -> None:
        self._client.submit(self._request(argv))

    def submit_noop(self) -> str:
        """Returns the id of the job."""
        return self._client.submit(self._request(NOTHING))

    def submit_singles(self, n: int, n_clients: int) -> None:
        spread(lambda: self.submit_one(NOTHING), n, n_clients=n_clients)

    def submit_many(self, n: int) -> None:
        self._client.submit_many([self._request(NOTHING)] * n)

    def run_noops(self, n: int) -> None:
        self.submit_many(n)
        # One job is enough to know that not all have ended. A page of a hundred jobs would cost the
        # daemon as much as the jobs themselves.
        wait_until(
            lambda: not self._client.jobs(states=LIVE, limit=1).jobs,
            what="end of all jobs",
            every_s=0.02,
            within_s=600.0,
        )
        if n_failed := self._n(["failed"]):
            raise RuntimeError(f"{n_failed} or more no-ops failed")

    def has_ended(self, job_id: str) -> bool:
        return self._client.show(job_id).job.state not in LIVE

    def state_times(self, job_id: str) -> dict[str, float]:
        """When the job entered each state, in seconds since the epoch."""
        return {entry.after: entry.at_s for entry in self._client.story(job_id)}

    def worker_dir(self, job_id: str) -> Path:
        return self._home / "engine" / "jobs" / job_id / "1" / "0"

    def list_once(self) -> None:
        assert self._sandbox is not None
        self._sandbox.run(*ROTA, "list")

    def survivors(self, n: int) -> int:
        assert self._sandbox is not None
        assert self._daemon is not None
        before = self._n(LIVE)
        self.submit_singles(n, 1)
        self._sandbox.kill(self._daemon)
        self._clients = threading.local()
        self._daemon = self._start(self._sandbox)
        return self._n(LIVE) - before

    def server_pids(self) -> Sequence[int]:
        assert self._daemon is not None
        return [self._daemon.pid, *children(self._daemon.pid)]

    @property
    def _home(self) -> Path:
        assert self._sandbox is not None
        return self._sandbox.folder / "state"

    @property
    def _client(self) -> Client:
        """One client per thread, as each user has one."""
        if not hasattr(self._clients, "own"):
            self._clients.own = Client(f"unix://{self._home / SOCKET_NAME}")
        return self._clients.own

    def _start(self, place: Sandbox) -> subprocess.Popen[bytes]:
        gpus = f"{max(self._slots, 1)}x16GiB"
        socket = self._home / SOCKET_NAME
        command = (*ROTA, "up", "--virtual-gpus", gpus)
        return place.daemon(*command, is_ready=lambda: answers_at(socket))

    def _request(self, argv: Sequence[str]) -> JobRequest:
        assert self._sandbox is not None
        return JobRequest(command=list(argv), gpus="1", workdir=str(self._sandbox.folder))

    def _n(self, states: Sequence[str]) -> int:
        """The number of jobs in these states, at most one page."""
        return len(self._client.jobs(states=states).jobs)
