"""gflow: a daemon that starts each job in a tmux session of its own."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.one_box.peer import NOTHING, Amounts, spread
from benchmarks.support.sandbox import (
    Sandbox,
    answers,
    first_line,
    free_port,
    has_commands,
    sandbox,
    wait_until,
)

# gflow cannot accept jobs without starting them; a later start time does the same.
LATER = ("--begin", "now+1d")
ENDED = ("Finished", "Failed", "Cancelled", "Timeout")


class Gflow:
    name = "gflow"
    needs = "PyPI's `runqd`, and Debian's `tmux`"
    remark = (
        "gflow is driven by `gbatch` and `gqueue`. It knows no slots without GPUs: its no-ops are"
        " one array that may run 8 tasks at once. Each job gets a tmux session with a login shell,"
        " one after the other, and a second's pause in each. The state is saved in the"
        " background, after the answer."
    )
    is_durable = False
    amounts = Amounts(n_noops=50)

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._port = 0
        self._slots = 0
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        return first_line("gbatch", "--version").split()[1]

    def available(self) -> bool:
        return has_commands(["gflowd", "gbatch", "gqueue", "gcancel", "tmux"])

    @contextmanager
    def running(self, slots: int) -> Iterator[None]:
        self._slots, self._port = slots, free_port()
        with sandbox("gflow") as self._sandbox:
            self._configure(self._sandbox)
            self._daemon = self._start(self._sandbox)
            yield

    def submit_one(self, argv: Sequence[str]) -> None:
        self._run("gbatch", *self._when(), *argv)

    def submit_singles(self, n: int, n_clients: int) -> None:
        spread(lambda: self.submit_one(NOTHING), n, n_clients=n_clients)

    def submit_many(self, n: int) -> None:
        self._run("gbatch", *self._when(), "--array", f"1-{n}", *NOTHING)

    def run_noops(self, n: int) -> None:
        at_once = ("--max-concurrent", str(self._slots))
        self._run("gbatch", "--array", f"1-{n}", *at_once, *NOTHING)
        wait_until(
            lambda: self._n_live() == 0, what="end of all jobs", every_s=0.05, within_s=600.0
        )

    def list_once(self) -> None:
        self._run("gqueue")

    def survivors(self, n: int) -> int:
        assert self._sandbox is not None
        assert self._daemon is not None
        before = self._n_live()
        self.submit_singles(n, 1)
        self._sandbox.kill(self._daemon)
        self._daemon = self._start(self._sandbox)
        return self._n_live() - before

    def server_pids(self) -> Sequence[int]:
        return [] if self._daemon is None else [self._daemon.pid]

    def _configure(self, place: Sandbox) -> None:
        folder = place.folder
        settings = folder / "config" / "gflow" / "gflow.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[daemon]\nhost = "127.0.0.1"\nport = {self._port}\n')
        place.environment |= {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_RUNTIME_DIR": str(folder),
            "TMUX_TMPDIR": str(folder),
            "SHELL": shutil.which("bash") or "/bin/bash",
        }
        # A login shell resets PATH; without this the job could not report its end.
        path = shlex.quote(place.environment["PATH"])
        (folder / ".bash_profile").write_text(f"export PATH={path}\n")

    def _start(self, place: Sandbox) -> subprocess.Popen[bytes]:
        return place.daemon("gflowd", is_ready=lambda: answers(self._port))

    def _when(self) -> Sequence[str]:
        return () if self._slots else LATER

    def _n_live(self) -> int:
        printed = self._run("gqueue", "--all", "--output", "json")
        # Without jobs the command prints a sentence.
        jobs = json.loads(printed)["jobs"] if printed.startswith("{") else []
        return sum(job["state"] not in ENDED for job in jobs)

    def _run(self, *argv: str) -> str:
        assert self._sandbox is not None, f"not running: {shlex.join(argv)}"
        return self._sandbox.run(*argv)
