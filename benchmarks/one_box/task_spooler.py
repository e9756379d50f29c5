"""task-spooler: one server without persistence, and one waiting process per job."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.one_box.peer import NOTHING, Amounts, NotOfferedError, spread
from benchmarks.support.sandbox import Sandbox, first_line, has_commands, sandbox, wait_until

LIVE = ("queued", "running", "allocating", "skipped")


class TaskSpooler:
    name = "task-spooler"
    needs = "Debian's `task-spooler`"
    remark = (
        "task-spooler is driven by its command `tsp`. It has no requests for many jobs, keeps"
        " them in memory, and keeps one waiting process for each."
    )
    is_durable = False
    # The server accepts 1,000 connections, and each waiting job has one.
    amounts = Amounts(n_single=500)

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._server: int = 0

    @property
    def version(self) -> str:
        return first_line("tsp", "-V").split()[2].removeprefix("v")

    def available(self) -> bool:
        return has_commands(["tsp"])

    @contextmanager
    def running(self, slots: int) -> Iterator[None]:
        with sandbox("tsp") as self._sandbox:
            self._sandbox.environment |= {
                "TS_SOCKET": str(self._sandbox.folder / "socket"),
                "TS_MAXFINISHED": "5000",
                "TS_SLOTS": str(max(slots, 1)),
                "TMPDIR": str(self._sandbox.folder),
            }
            self._start()
            if slots == 0:
                self.submit_one(("sleep", "infinity"))
            yield

    def submit_one(self, argv: Sequence[str]) -> None:
        self._run("tsp", *argv)

    def submit_singles(self, n: int, n_clients: int) -> None:
        spread(lambda: self.submit_one(NOTHING), n, n_clients=n_clients)

    def submit_many(self, n: int) -> None:
        raise NotOfferedError(f"no request for {n} jobs")

    def run_noops(self, n: int) -> None:
        self.submit_singles(n, 8)
        wait_until(
            lambda: self._n_live() == 0, what="end of all jobs", every_s=0.02, within_s=300.0
        )

    def list_once(self) -> None:
        self._run("tsp", "-l")

    def survivors(self, n: int) -> int:
        before = self._n_live()
        self.submit_singles(n, 1)
        os.kill(self._server, signal.SIGKILL)
        self._start()
        return max(self._n_live() - before, 0)

    def server_pids(self) -> Sequence[int]:
        return [self._server]

    def _start(self) -> None:
        assert self._sandbox is not None
        (self._sandbox.folder / "socket").unlink(missing_ok=True)
        others = set(self._sandbox.pids())
        # Any command starts the server in the background.
        self._run("tsp", "-S")
        (self._server,) = set(self._sandbox.pids()) - others

    def _n_live(self) -> int:
        lines = self._run("tsp", "-l").splitlines()[1:]
        return sum(line.split()[1] in LIVE for line in lines)

    def _run(self, *argv: str) -> str:
        assert self._sandbox is not None, f"not running: {shlex.join(argv)}"
        return self._sandbox.run(*argv)
